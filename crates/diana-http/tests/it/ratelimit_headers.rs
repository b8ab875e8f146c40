//! The rate limit response headers.

use crate::support::{client, denied, empty, file, filter, get, granted, head, with_options};
use diana_http::{FilterOptions, RateLimitHeaders};
use http::{HeaderValue, Response};

/// Returns the headers of the first response with these rules.
fn first(rules: &str) -> (String, String) {
    let (filter, _) = filter(rules);
    let response = granted(filter.check(&get("/"), client())).finish(empty());
    let header = |name: &str| response.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    (header("ratelimit-policy"), header("ratelimit"))
}

#[test]
fn reports_each_kind_of_limit() {
    for (limit, policy, status) in [
        ("limit: 100/s", "q=100;w=1", "r=99;t=1"),
        ("limit: {rate: 100/s, burst: 250}", "q=250;w=3", "r=249;t=1"),
        ("limit: 5/200ms", "q=5;w=1", "r=4;t=1"),
        ("limit: 100/h", "q=100;w=3600", "r=99;t=36"),
        ("limit: 100/min, algorithm: fixed_window", "q=100;w=60", "r=99;t=40"),
        ("limit: 100/month, algorithm: fixed_window, time_zone: Europe/Berlin", "q=100;w=2592000", "r=99;t=1385200"),
        ("limit: 100/min, algorithm: sliding_window", "q=100;w=60", "r=99;t=58"),
        ("limit: 100/min, algorithm: sliding_log", "q=100;w=60", "r=99;t=60"),
        ("limit: 10/s, algorithm: leaky_bucket, burst: 19", "q=20;w=2", "r=19;t=1"),
        ("limit: 10/s, algorithm: smooth_bursty", "q=10;w=1", "r=9;t=1"),
        ("every: 5s", "q=1;w=5", "r=0;t=5"),
        ("total: 10", "q=10", "r=9"),
        ("concurrent: 10", "q=10;qu=\"concurrent-requests\"", "r=9"),
    ] {
        let (reported_policy, reported) = first(&format!("rules: [{{name: a, {limit}}}]"));
        assert_eq!(
            (&*reported_policy, &*reported),
            (&*format!("\"a\";{policy}"), &*format!("\"a\";{status}")),
            "{limit}"
        );
    }
}

#[test]
fn reports_several_limits_in_the_order_of_the_rules() {
    let (policy, status) =
        first("rules: [{name: a, limit: [{rate: 1/s, burst: 2}, 9/h]}, {name: b, by: ip, total: 3}]");
    assert_eq!(policy, "\"a\";q=2;w=2, \"a#2\";q=9;w=3600, \"b\";q=3");
    assert_eq!(status, "\"a\";r=1;t=1, \"a#2\";r=8;t=400, \"b\";r=2");
}

#[test]
fn names_are_structured_field_strings() {
    // A limit of one key has the key in its name, and keys can be anything.
    let rules = "rules: [{name: a, by: 'query(k)', limit: 1/s, overrides: {'\"b\" \\ é': 5/s}}]";
    let (filter, _) = filter(rules);
    let response = granted(filter.check(&get("/?k=%22b%22+%5C+%C3%A9"), client())).finish(empty());
    assert_eq!(response.headers()["ratelimit-policy"], "\"a@\\\"b\\\" \\\\ %C3%A9\";q=5;w=1");
    assert_eq!(response.headers()["ratelimit"], "\"a@\\\"b\\\" \\\\ %C3%A9\";r=4;t=1");
}

#[test]
fn reports_at_most_eight_limits() {
    let rules = (0..12)
        .map(|index| format!("{{name: r{index}, limit: {}/{}s}}", index + 1, (index + 1) * (index + 1)))
        .collect::<Vec<_>>()
        .join(", ");
    let (policy, status) = first(&format!("rules: [{rules}]"));
    assert_eq!((policy.split(", ").count(), status.split(", ").count()), (8, 8));
}

#[test]
fn each_window_of_a_log_is_a_policy() {
    let log = |rate: &str| format!("{{rate: {rate}, algorithm: sliding_log}}");
    let (policy, status) = first(&format!("rules: [{{name: a, limit: [{}, {}]}}]", log("5/min"), log("2/s")));
    assert_eq!((&*policy, &*status), ("\"a\";q=5;w=60, \"a#2\";q=2;w=1", "\"a\";r=1;t=1"));
}

#[test]
fn a_request_without_a_rule_has_no_headers() {
    assert_eq!(first("rules: [{name: a, match: {path: /b}, limit: 1/s}]"), ("-".to_owned(), "-".to_owned()));
}

#[test]
fn the_headers_are_configurable() {
    const RULES: &str = "rules: [{name: a, limit: 2/h}, {name: b, limit: 5/h}]";
    let ietf = "ratelimit-policy: \"a\";q=2;w=3600, \"b\";q=5;w=3600\nratelimit: \"a\";r=1;t=1800, \"b\";r=4;t=720";
    let x = "x-ratelimit-limit: 2\nx-ratelimit-remaining: 1\nx-ratelimit-reset: 1800";
    for (headers, expected) in [
        (RateLimitHeaders::Ietf, format!("200\n{ietf}")),
        (RateLimitHeaders::X, format!("200\n{x}")),
        (RateLimitHeaders::Both, format!("200\n{ietf}\n{x}")),
        (RateLimitHeaders::Off, "200\n".to_owned()),
    ] {
        let (filter, _) = with_options(RULES, FilterOptions::default().rate_limit_headers(headers));
        assert_eq!(head(&granted(filter.check(&get("/"), client())).finish(empty())), expected);
    }
    let gateway = "gateway: {rate_limit_headers: x, trusted_proxies: 10.0.0.0/8}";
    let (filter, _) = with_options(RULES, FilterOptions::of(&file(&format!("{gateway}\n{RULES}"))));
    assert_eq!(head(&granted(filter.check(&get("/"), client())).finish(empty())), format!("200\n{x}"));
    let headers =
        http::HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), HeaderValue::from_static("1.1.1.1"))]);
    assert_eq!(filter.client(&headers, [10, 0, 0, 1].into()).to_string(), "1.1.1.1");
}

#[test]
fn a_denial_reports_the_full_reset_and_an_earlier_retry_after() {
    let options = FilterOptions::default().rate_limit_headers(RateLimitHeaders::Both);
    let (filter, _) = with_options("rules: [{name: a, limit: 2/h}, {name: b, limit: 5/h}]", options);
    for _ in 0..2 {
        granted(filter.check(&get("/"), client())).begin();
    }
    let head = head(&denied(filter.check(&get("/"), client())).into_response());
    assert!(head.contains("ratelimit: \"a\";r=0;t=3600, \"b\";r=3;t=1440"), "{head}");
    assert!(head.contains("x-ratelimit-limit: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 3600"), "{head}");
    assert!(head.contains("retry-after: 1800"), "{head}");
}

#[test]
fn keeps_the_headers_of_the_upstream() {
    let (filter, _) = filter("rules: [{name: a, limit: 2/h}]");
    let upstream = Response::builder()
        .header("ratelimit", "\"upstream\";r=1")
        .body(http_body_util::Empty::<&[u8]>::new())
        .unwrap();
    let response = granted(filter.check(&get("/"), client())).finish(upstream);
    let all = response.headers().get_all("ratelimit").iter().collect::<Vec<_>>();
    assert_eq!(all, ["\"upstream\";r=1", "\"a\";r=1;t=1800"]);
}

#[test]
fn reports_a_changed_limit() {
    let (filter, _) = filter("rules: [{name: a, limit: 2/h}]");
    let policy = || {
        let response = granted(filter.check(&get("/"), client())).finish(empty());
        response.headers()["ratelimit-policy"].to_str().unwrap().to_owned()
    };
    assert_eq!(policy(), "\"a\";q=2;w=3600");
    filter.engine().set_rules(&file("rules: [{name: a, limit: 9/min}]"));
    assert_eq!(policy(), "\"a\";q=9;w=60");
}
