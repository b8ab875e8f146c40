//! Redis is killed, or frozen, under load: every request is answered, none waits for Redis twice, and the limit holds as promised:
//! at most limit + max(limit, instances) in the window of a switch, the limit before and after.

use super::fleet::{Fleet, PASSED};
use super::load::Load;
use crate::support::client::Client;
use diana_testing::RedisServer;

const INSTANCES: u64 = 2;
const LIMIT: u64 = 40;
/// How many more requests for each path are made where something may change.
const A_WHILE: u64 = 200;

/// One that keeps its counts on disk, so that one that was killed comes back into the same window.
fn redis() -> RedisServer {
    RedisServer::builder().arg("appendonly", "yes").arg("appendfsync", "always").start().unwrap()
}

fn rules(redis: &RedisServer, timeout: &str) -> String {
    format!(
        "
gateway: {{listen: '127.0.0.1:0', workers: 1}}
store: {{redis: '{}', timeout: {timeout}}}
status: 429
rules:
  - {{name: few, match: {{path: /few}}, limit: {LIMIT}/day, algorithm: fixed_window, opens: first_request}}
  - {{name: one, match: {{path: /one}}, limit: 1/day, algorithm: fixed_window, opens: first_request}}
  - {{name: plenty, match: {{path: /plenty}}, limit: 10000000/day, algorithm: fixed_window, opens: first_request}}
  - {{name: fresh, match: {{path: /fresh}}, limit: 10/day, algorithm: fixed_window, opens: first_request}}
",
        redis.url()
    )
}

/// What may pass in the window of a switch.
fn promised(limit: u64) -> u64 {
    limit + limit.max(INSTANCES)
}

fn under_load(timeout: &str, goes: impl FnOnce(&mut RedisServer), comes_back: impl FnOnce(&mut RedisServer)) {
    let mut redis = redis();
    let fleet = Fleet::start(2, &rules(&redis, timeout));
    fleet.until_they_see_each_other();
    let load = Load::start(&fleet, &["/few", "/one", "/plenty"]);
    load.go_on(A_WHILE);
    assert_eq!((load.passed("/few"), load.passed("/one")), (LIMIT, 1), "before");

    goes(&mut redis);
    fleet.until("all to see that Redis is away", || fleet.all_are_degraded());
    // Those that were under way are done after this, and nobody waits any more.
    load.go_on(A_WHILE);
    let waits = fleet.waits();
    let passed = || (load.passed("/few"), load.passed("/one"));
    // Each takes its share, and at least one, as soon as it has forgotten what Redis refused, ...
    let during = (promised(LIMIT), promised(1));
    fleet.until("the shares to be taken", || passed().0 >= during.0 && passed().1 >= during.1);
    // ... and no more than that.
    load.go_on(A_WHILE);
    assert_eq!(passed(), during, "during");
    assert!(fleet.all_are_degraded(), "{:?}", fleet.links());
    assert_eq!(fleet.waits(), waits, "requests waited for a Redis that is known to be away");

    comes_back(&mut redis);
    fleet.until("all to be back on Redis", || fleet.all_are_healthy());
    let waits = fleet.waits();
    load.go_on(A_WHILE);
    assert!(fleet.waits() > waits, "nobody asks Redis: {:?}", fleet.links());
    assert_eq!(passed(), during, "after");
    let (plenty, waited) = (load.passed("/plenty"), fleet.waits());
    let answered = load.stop();
    assert!(plenty >= 4 * A_WHILE && waited <= answered, "{plenty} passed, {waited} waits of {answered} requests");
    // And what nobody has asked for yet is shared as ever.
    assert_eq!(fleet.hammer("/fresh", 3, 5, 6).iter().sum::<usize>(), 10);
}

/// Its end is noticed at once. The timeout is far longer than a busy machine holds up a Redis that lives, since who takes it for
/// dead answers by local counts before the test expects that.
#[test]
fn killed_under_load() {
    under_load("20s", |redis| redis.kill().unwrap(), |redis| redis.restart().unwrap());
}

/// It is noticed by the timeout.
#[test]
fn frozen_under_load() {
    under_load("5s", |redis| redis.freeze().unwrap(), |redis| redis.thaw().unwrap());
}

/// One request that several shared limits are about, and a local one: as soon as Redis is away it waits once for all of them, and
/// what it held is not given back to a Redis that does not know of it.
fn one_request(goes: impl FnOnce(&mut RedisServer)) {
    let mut redis = redis();
    let fleet = Fleet::start(
        1,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1}}
store: {{redis: '{}', timeout: 2s}}
status: 429
rules:
  - {{name: everyone, limit: 1000/day}}
  - {{name: each-address, by: ip, limit: [100/day, {{rate: 1000/week, algorithm: sliding_window}}]}}
  - {{name: places, match: {{path: /held}}, by: [ip, host], concurrent: 10}}
  - {{name: own, by: ip, limit: 100/day, store: local}}
",
            redis.url()
        ),
    );
    fleet.until_they_see_each_other();
    let mut client = Client::connect(fleet.ports()[0]);
    // Not one that holds a place: that is given back behind its answer, by a command of its own.
    assert_eq!(client.get("/").status, PASSED);
    let trips = || fleet.links().iter().map(|link| (link.waits, link.commands)).next().unwrap();
    goes(&mut redis);
    // The first of them, and one more that comes before that is noted; none, if Diana has seen it by itself.
    let most = trips().0 + 2;
    for _ in 0..5 {
        let (waits, commands) = trips();
        assert_eq!(client.get("/held").status, PASSED);
        let (waits, commands) = (trips().0 - waits, trips().1 - commands);
        assert!(waits <= 1 && commands <= 1, "it waited {waits} times, for {commands} commands");
    }
    assert!(trips().0 <= most, "{:?}", fleet.links());
    fleet.until("it to see that Redis is away", || fleet.all_are_degraded());
}

#[test]
fn frozen_one_request_waits_once() {
    one_request(|redis| redis.freeze().unwrap());
}

#[test]
fn killed_one_request_waits_once() {
    one_request(|redis| redis.kill().unwrap());
}
