//! Gateways that share a limit allow exactly that limit in total; without sharing, each allows its own.

use super::fleet::{Fleet, PASSED, REFUSED};
use crate::support::client::Client;
use diana_testing::RedisServer;

/// Far longer than Redis takes, so that nothing is decided without it.
const STORE: &str = "timeout: 20s, lease: off";

#[test]
fn two_gateways_that_share_let_exactly_the_limit_pass() {
    const LIMIT: usize = 150;
    let redis = RedisServer::start().unwrap();
    // A bucket that gains one permit a day gains none during the test.
    let fleet = Fleet::start(
        2,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 2}}
store: {{redis: '{}', {STORE}}}
status: 429
rules:
  - {{name: window, match: {{path: /window}}, limit: {LIMIT}/h, algorithm: fixed_window, opens: first_request}}
  - {{name: total, match: {{path: /total}}, total: {LIMIT}}}
  - {{name: bucket, match: {{path: /bucket}}, limit: {{rate: 1/day, burst: {LIMIT}}}}}
",
            redis.url()
        ),
    );
    for path in ["/window", "/total", "/bucket"] {
        // 120 at each: neither could use up the limit alone, and both would allow all of theirs if they did not share.
        let passed = fleet.hammer(path, 6, 20, 12);
        assert_eq!(passed.iter().sum::<usize>(), LIMIT, "{path}: {passed:?}");
    }
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
}

/// The same with one hundred gateways and a window of 50. (An hour, since 50 a second would need a fast machine.)
fn one_hundred(store: &str) -> usize {
    let fleet = Fleet::start(
        100,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1}}
{store}
status: 429
rules: [{{name: everyone, limit: 50/h, algorithm: fixed_window, opens: first_request}}]
"
        ),
    );
    let passed = fleet.hammer("/", 1, 60, 10);
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
    passed.iter().sum()
}

#[test]
fn one_hundred_gateways_that_count_locally_let_one_hundred_times_the_limit_pass() {
    assert_eq!(one_hundred(""), 5_000);
}

#[test]
fn one_hundred_gateways_that_share_let_the_limit_pass() {
    let redis = RedisServer::start().unwrap();
    assert_eq!(one_hundred(&format!("store: {{redis: '{}', {STORE}}}", redis.url())), 50);
}

/// A denial without a query to Redis has the same headers as one by Redis: with the other limit too, and the longest
/// retry time.
#[test]
fn the_headers_of_denials_stay_as_they_are() {
    let redis = RedisServer::start().unwrap();
    let fleet = Fleet::start(
        1,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1}}
store: {{redis: '{}', {STORE}}}
status: 429
rules:
  - {{name: few, limit: 3/week, algorithm: fixed_window, opens: first_request}}
  - {{name: many, limit: 50/day, algorithm: fixed_window, opens: first_request}}
",
            redis.url()
        ),
    );
    fleet.until_they_see_each_other();
    let mut client = Client::connect(fleet.ports()[0]);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, PASSED);
    }
    for nth in 0..100 {
        let denied = client.get("/");
        assert_eq!(denied.status, REFUSED);
        let told = denied.header("ratelimit").unwrap().split(", ").map(|limit| limit.split(";t=").next().unwrap());
        assert_eq!(told.collect::<Vec<_>>(), ["\"few\";r=0", "\"many\";r=47"], "the {nth}th");
        // A week, and not the day of the other limit.
        let after = denied.header("retry-after").unwrap().parse::<u64>().unwrap();
        assert!((6 * 86_400..=7 * 86_400).contains(&after), "the {nth}th: {after} s");
    }
    assert!(fleet.links()[0].saved_by_deny_cache > 0, "{:?}", fleet.links());
}
