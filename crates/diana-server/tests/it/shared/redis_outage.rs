//! Redis is killed, or frozen, under load: every request is answered, none waits for Redis twice, and the limit holds
//! as documented: at most limit + max(limit, instances) in the window of a switch, the limit before and after.

use super::fleet::{ALLOWED, Fleet};
use super::load::Load;
use crate::support::client::Client;
use diana_testing::RedisServer;

const INSTANCES: u64 = 2;
const LIMIT: u64 = 40;
/// The number of further requests for each path when something may change.
const REQUESTS: u64 = 200;

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

/// Returns how many requests may be allowed in a window in which Redis becomes unreachable.
fn allowed_in_switch(limit: u64) -> u64 {
    limit + limit.max(INSTANCES)
}

fn under_load(timeout: &str, fail: impl FnOnce(&mut RedisServer), recover: impl FnOnce(&mut RedisServer)) {
    let mut redis = redis();
    let fleet = Fleet::start(2, &rules(&redis, timeout));
    fleet.until_all_are_registered();
    let load = Load::start(&fleet, &["/few", "/one", "/plenty"]);
    load.wait_for_more(REQUESTS);
    assert_eq!((load.allowed("/few"), load.allowed("/one")), (LIMIT, 1), "before");

    fail(&mut redis);
    fleet.until("all to notice that Redis is unreachable", || fleet.all_are_degraded());
    // Requests that were active are finished after this, and none waits any more.
    load.wait_for_more(REQUESTS);
    let waits = fleet.waits();
    let allowed = || (load.allowed("/few"), load.allowed("/one"));
    // Each gateway takes its share, and at least one, as soon as its cached denial by Redis has expired, ...
    let during = (allowed_in_switch(LIMIT), allowed_in_switch(1));
    fleet.until("the local shares to be used", || allowed().0 >= during.0 && allowed().1 >= during.1);
    // ... and no more than that.
    load.wait_for_more(REQUESTS);
    assert_eq!(allowed(), during, "during");
    assert!(fleet.all_are_degraded(), "{:?}", fleet.links());
    assert_eq!(fleet.waits(), waits, "requests waited for an unreachable Redis");

    recover(&mut redis);
    fleet.until("all to use Redis again", || fleet.all_are_healthy());
    let waits = fleet.waits();
    load.wait_for_more(REQUESTS);
    assert!(fleet.waits() > waits, "no request queries Redis: {:?}", fleet.links());
    assert_eq!(allowed(), during, "after");
    let (allowed_plenty, waits_in_total) = (load.allowed("/plenty"), fleet.waits());
    let responses = load.stop();
    assert!(
        allowed_plenty >= 4 * REQUESTS && waits_in_total <= responses,
        "{allowed_plenty} allowed, {waits_in_total} waits of {responses} requests"
    );
    // Unused keys are shared as before.
    assert_eq!(fleet.hammer("/fresh", 3, 5, 6).iter().sum::<usize>(), 10);
}

/// The kill is noticed at once. The timeout is far longer than a busy machine delays a live Redis: a gateway that takes
/// it for dead would use local counts before the test expects that.
#[test]
fn redis_killed_under_load() {
    under_load("20s", |redis| redis.kill().unwrap(), |redis| redis.restart().unwrap());
}

/// The freeze is noticed by the timeout.
#[test]
fn redis_frozen_under_load() {
    under_load("5s", |redis| redis.freeze().unwrap(), |redis| redis.thaw().unwrap());
}

/// One request with several shared limits and a local one: when Redis is unreachable it waits once for all of them, and
/// its permits are not released on a Redis that does not know of them.
fn one_request(fail: impl FnOnce(&mut RedisServer)) {
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
  - {{name: permits, match: {{path: /held}}, by: [ip, host], concurrent: 10}}
  - {{name: own, by: ip, limit: 100/day, store: local}}
",
            redis.url()
        ),
    );
    fleet.until_all_are_registered();
    let mut client = Client::connect(fleet.ports()[0]);
    // Not a request with a permit: that is released after its response, by a separate command.
    assert_eq!(client.get("/").status, ALLOWED);
    let round_trips = || fleet.links().iter().map(|link| (link.waits, link.commands)).next().unwrap();
    fail(&mut redis);
    // The first of them, and one more before the failure is recorded; none, if Diana has noticed it itself.
    let max = round_trips().0 + 2;
    for _ in 0..5 {
        let (waits, commands) = round_trips();
        assert_eq!(client.get("/held").status, ALLOWED);
        let (waits, commands) = (round_trips().0 - waits, round_trips().1 - commands);
        assert!(waits <= 1 && commands <= 1, "{waits} waits, {commands} commands");
    }
    assert!(round_trips().0 <= max, "{:?}", fleet.links());
    fleet.until("it to notice that Redis is unreachable", || fleet.all_are_degraded());
}

/// A share is announced in the window of its rule: it is less, not faster.
#[test]
fn the_share_of_an_instance_is_announced_in_the_window_of_the_rule() {
    let limits = [
        ("limit: 20/min", "q=20;w=60", "q=10;w=60"),
        ("limit: {rate: 20/min, burst: 40}", "q=40;w=120", "q=20;w=120"),
        ("limit: {rate: 20/min, refill: {every: 1min}}", "q=20;w=60", "q=10;w=60"),
        ("limit: 20/min, algorithm: leaky_bucket, burst: 19", "q=20;w=60", "q=10;w=60"),
        ("limit: 20/min, algorithm: fixed_window", "q=20;w=60", "q=10;w=60"),
        ("limit: {rate: 20/day, algorithm: fixed_window, time_zone: UTC}", "q=20;w=86400", "q=10;w=86400"),
        ("limit: 20/min, algorithm: sliding_window", "q=20;w=60", "q=10;w=60"),
        ("limit: 20/min, algorithm: sliding_log", "q=20;w=60", "q=10;w=60"),
        ("limit: {rate: 20/s, algorithm: smooth_bursty, starts: full}", "q=20;w=1", "q=10;w=1"),
        ("limit: {rate: 20/s, algorithm: smooth_warming_up, warm_up: 2s}", "q=40;w=2", "q=20;w=2"),
        ("every: 1s", "q=1;w=1", "q=1;w=1"),
        ("total: 20", "q=20", "q=10"),
        ("concurrent: 20", "q=20;qu=\"concurrent-requests\"", "q=10;qu=\"concurrent-requests\""),
    ];
    let mut redis = redis();
    let rules = (0..).zip(&limits).map(|(number, (limit, ..))| {
        format!("  - {{name: r{number}, match: {{path: /{number}}}, by: query(k), {limit}}}\n")
    });
    let fleet = Fleet::start(
        2,
        &format!(
            "gateway: {{listen: '127.0.0.1:0', workers: 1}}\nstore: {{redis: '{}', timeout: 20s}}\nrules:\n{}",
            redis.url(),
            rules.collect::<String>()
        ),
    );
    fleet.until_all_are_registered();
    let mut client = Client::connect(fleet.ports()[0]);
    let mut announced = |key: &str| {
        let policy = |number: usize| {
            let response = client.get(&format!("/{number}?k={key}"));
            response.header("ratelimit-policy").unwrap_or("-").replace(&format!("\"r{number}\";"), "")
        };
        (0..limits.len()).map(policy).collect::<Vec<_>>()
    };
    assert_eq!(announced("before"), limits.map(|(_, whole, _)| whole));
    redis.kill().unwrap();
    fleet.until("all to notice that Redis is unreachable", || fleet.all_are_degraded());
    assert_eq!(announced("during"), limits.map(|(.., share)| share));
}

/// The essay's 50 over three gateways: without Redis each falls back to local limiting, with its share or with the whole limit.
#[test]
fn without_redis_each_gateway_has_its_share_or_the_whole_limit() {
    for (when_down, each) in [("local", 16), ("{local: share}", 16), ("{local: full}", 50)] {
        let mut redis = redis();
        let text = format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1}}
store: {{redis: '{}', timeout: 20s, when_down: {when_down}}}
status: 429
rules: [{{name: calls, by: query(k), limit: 50/day, algorithm: fixed_window, opens: first_request}}]
",
            redis.url()
        );
        let fleet = Fleet::start(3, &text);
        fleet.until_all_are_registered();
        assert_eq!(fleet.hammer("/?k=shared", 3, 40, 3).iter().sum::<usize>(), 50);
        redis.kill().unwrap();
        fleet.until("all to notice that Redis is unreachable", || fleet.all_are_degraded());
        let allowed = fleet.ports().into_iter().map(|port| {
            let mut client = Client::connect(port);
            (0..60).filter(|_| client.get("/?k=alone").status == ALLOWED).count()
        });
        assert_eq!(allowed.collect::<Vec<_>>(), [each; 3], "{when_down}");
    }
}

#[test]
fn one_request_waits_once_for_a_frozen_redis() {
    one_request(|redis| redis.freeze().unwrap());
}

#[test]
fn one_request_waits_once_for_a_killed_redis() {
    one_request(|redis| redis.kill().unwrap());
}
