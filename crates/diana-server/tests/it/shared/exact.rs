//! Gateways that share a limit let exactly that limit pass, all together; those that do not, each its own.

use super::fleet::Fleet;
use diana_testing::RedisServer;

/// Far more than Redis takes, so that nothing is decided without it.
const STORE: &str = "timeout: 20s, lease: off";

#[test]
fn two_gateways_that_share_let_exactly_the_limit_pass() {
    const LIMIT: usize = 150;
    let redis = RedisServer::start().unwrap();
    // A bucket that gains one permit a day gains none here.
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
        // 120 at each: neither could spend the limit alone, and both would let all of theirs pass if they did not share.
        let passed = fleet.hammer(path, 6, 20, 12);
        assert_eq!(passed.iter().sum::<usize>(), LIMIT, "{path}: {passed:?}");
    }
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
}

/// The same for two: one hundred gateways with a window of 50. (An hour, where 50 a second would need a quick machine.)
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
