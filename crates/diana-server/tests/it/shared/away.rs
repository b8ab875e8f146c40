//! Redis is killed, or frozen, under load: every request is answered, none waits for Redis twice, and the limit holds
//! as promised: at most limit + max(limit, instances) in the window of a switch, the limit before and after.

use super::fleet::{Fleet, PASSED};
use super::load::Load;
use crate::support::client::Client;
use diana_testing::RedisServer;

const INSTANCES: u64 = 2;
const LIMIT: u64 = 40;
/// The number of further requests for each path when something may change.
const A_WHILE: u64 = 200;

/// Starts a Redis that persists its counts, so that after a kill it restarts in the same window.
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

/// Returns how many requests may be allowed in the window of a switch.
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
    fleet.until("all to see that Redis is unreachable", || fleet.all_are_degraded());
    // Requests that were active are finished after this, and none waits any more.
    load.go_on(A_WHILE);
    let waits = fleet.waits();
    let passed = || (load.passed("/few"), load.passed("/one"));
    // Each gateway takes its share, and at least one, as soon as its cached denial by Redis has expired, ...
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
    // Unused keys are shared as before.
    assert_eq!(fleet.hammer("/fresh", 3, 5, 6).iter().sum::<usize>(), 10);
}

/// The kill is noticed at once. The timeout is far longer than a busy machine delays a live Redis: a gateway that takes
/// it for dead would use local counts before the test expects that.
#[test]
fn killed_under_load() {
    under_load("20s", |redis| redis.kill().unwrap(), |redis| redis.restart().unwrap());
}

/// The freeze is noticed by the timeout.
#[test]
fn frozen_under_load() {
    under_load("5s", |redis| redis.freeze().unwrap(), |redis| redis.thaw().unwrap());
}

/// One request with several shared limits and a local one: when Redis is unreachable it waits once for all of them, and
/// its permits are not released on a Redis that does not know of them.
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
    // Not a request with a permit: that is released after its response, by a separate command.
    assert_eq!(client.get("/").status, PASSED);
    let trips = || fleet.links().iter().map(|link| (link.waits, link.commands)).next().unwrap();
    goes(&mut redis);
    // The first of them, and one more before the failure is recorded; none, if Diana has noticed it itself.
    let most = trips().0 + 2;
    for _ in 0..5 {
        let (waits, commands) = trips();
        assert_eq!(client.get("/held").status, PASSED);
        let (waits, commands) = (trips().0 - waits, trips().1 - commands);
        assert!(waits <= 1 && commands <= 1, "it waited {waits} times, for {commands} commands");
    }
    assert!(trips().0 <= most, "{:?}", fleet.links());
    fleet.until("it to see that Redis is unreachable", || fleet.all_are_degraded());
}

#[test]
fn frozen_one_request_waits_once() {
    one_request(|redis| redis.freeze().unwrap());
}

#[test]
fn killed_one_request_waits_once() {
    one_request(|redis| redis.kill().unwrap());
}
