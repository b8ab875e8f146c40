//! Gateways that share a limit allow exactly that limit in total; without sharing, each allows its own. Requests that are
//! queued for a shared count are woken by changes through another gateway.

use super::fleet::{ALLOWED, DENIED, Fleet};
use crate::support::client::{Client, get, send_request};
use crate::support::program::{Diana, LONG};
use diana_testing::{RedisServer, wait_until};

/// Far longer than Redis takes, so that nothing is decided without it.
const STORE: &str = "timeout: 20s, lease: off";

#[test]
fn two_sharing_gateways_allow_exactly_the_limit() {
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
        let allowed = fleet.hammer(path, 6, 20, 12);
        assert_eq!(allowed.iter().sum::<usize>(), LIMIT, "{path}: {allowed:?}");
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
    let allowed = fleet.hammer("/", 1, 60, 10);
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
    allowed.iter().sum()
}

#[test]
fn one_hundred_local_gateways_allow_one_hundred_times_the_limit() {
    assert_eq!(one_hundred(""), 5_000);
}

#[test]
fn one_hundred_sharing_gateways_allow_the_limit() {
    let redis = RedisServer::start().unwrap();
    assert_eq!(one_hundred(&format!("store: {{redis: '{}', {STORE}}}", redis.url())), 50);
}

/// A denial without a query to Redis has the same headers as one by Redis: with the other limit too, and the longest
/// retry time.
#[test]
fn cached_denials_have_the_same_headers() {
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
    fleet.until_all_are_registered();
    let mut client = Client::connect(fleet.ports()[0]);
    for _ in 0..3 {
        assert_eq!(client.get("/").status, ALLOWED);
    }
    for number in 0..100 {
        let denied = client.get("/");
        assert_eq!(denied.status, DENIED);
        let limits = denied.header("ratelimit").unwrap().split(", ").map(|limit| limit.split(";t=").next().unwrap());
        assert_eq!(limits.collect::<Vec<_>>(), ["\"few\";r=0", "\"many\";r=47"], "request {number}");
        // A week, and not the day of the other limit.
        let after = denied.header("retry-after").unwrap().parse::<u64>().unwrap();
        assert!((6 * 86_400..=7 * 86_400).contains(&after), "request {number}: {after} s");
    }
    assert!(fleet.links()[0].saved_by_deny_cache > 0, "{:?}", fleet.links());
}

/// A failed login through one gateway is counted for the other.
#[test]
fn two_gateways_count_failed_logins_together() {
    let redis = RedisServer::start().unwrap();
    let upstream = crate::gateway::count_by_status::statuses();
    let rules = format!(
        "
gateway: {{listen: '$LISTEN', workers: 1, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s}}
status: 429
rules:
  - {{name: failed, match: {{path: /login/**}}, by: ip, total: 4, count: {{status: 401}}}}
  - {{name: quota, match: {{path: /api/**}}, total: 2, count: {{status: 5xx, refund: true}}}}
",
        upstream.url(),
        redis.url()
    );
    let gateways = [Diana::serve(&rules), Diana::serve(&rules)];
    let used = |diana: &Diana, rule: &str, key: &str, remaining: u64| {
        let path = format!("/peek?rule={rule}{key}");
        let text = format!("\"remaining\":{remaining}");
        // A response does not wait for the charge.
        wait_until("the charge", LONG, || diana.admin(&path).text().contains(&text).then_some(())).unwrap();
    };
    for number in 0..4_usize {
        assert_eq!(get(gateways[number % 2].port(), "/login/200").status, 200);
        assert_eq!(get(gateways[number % 2].port(), "/login/401").status, 401);
        used(&gateways[(number + 1) % 2], "failed", "&key=127.0.0.1", 3 - number as u64);
    }
    for diana in &gateways {
        assert_eq!(get(diana.port(), "/login/200").status, 429);
    }
    for number in 0..4_usize {
        assert_eq!(get(gateways[number % 2].port(), "/api/503").status, 503);
        used(&gateways[(number + 1) % 2], "quota", "", 2);
    }
    for status in [200, 200, 429] {
        assert_eq!(get(gateways[0].port(), "/api/200").status, status);
    }
}

#[test]
fn queued_requests_are_woken_by_a_reset_through_another_gateway() {
    let redis = RedisServer::start().unwrap();
    let rules = format!(
        "
gateway: {{listen: '$LISTEN', workers: 1, echo: true}}
store: {{redis: '{}', timeout: 20s}}
rules: [{{name: daily, limit: 1/day, algorithm: fixed_window, wait: 2d}}]
",
        redis.url()
    );
    let (one, other) = (Diana::serve(&rules), Diana::serve(&rules));
    let is_subscribed = || redis.cli(&["PUBSUB", "NUMSUB", "diana:returned"]).unwrap().contains('2').then_some(());
    wait_until("both to subscribe", LONG, is_subscribed).unwrap();
    assert_eq!(get(other.port(), "/").status, 200);
    let mut queued = Client::connect(one.port());
    queued.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    wait_until("it to be queued", LONG, || (one.metric("diana_connections") == 1.0).then_some(())).unwrap();
    let reset = "POST /reset?rule=daily HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(send_request(other.admin_port(), reset).unwrap().status, 200);
    assert_eq!(queued.response().status, 200);
}
