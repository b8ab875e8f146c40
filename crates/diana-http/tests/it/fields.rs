//! The rate limit response headers.

use crate::support::{client, empty, file, filter, get, head, passed, refused, with_options};
use diana_http::{FilterOptions, RateLimitHeaders};
use http::{HeaderValue, Response};

/// Returns the headers of the first response with these rules.
fn first(rules: &str) -> (String, String) {
    let (filter, _) = filter(rules);
    let response = passed(filter.check(&get("/"), client())).answer(empty());
    let field = |name: &str| response.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
    (field("ratelimit-policy"), field("ratelimit"))
}

#[test]
fn each_kind_of_limit_is_told_in_its_way() {
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
        let (told_policy, told) = first(&format!("rules: [{{name: a, {limit}}}]"));
        assert_eq!((&*told_policy, &*told), (&*format!("\"a\";{policy}"), &*format!("\"a\";{status}")), "{limit}");
    }
}

#[test]
fn several_limits_are_told_in_the_order_of_the_rules() {
    let (policy, status) =
        first("rules: [{name: a, limit: [{rate: 1/s, burst: 2}, 9/h]}, {name: b, by: ip, total: 3}]");
    assert_eq!(policy, "\"a\";q=2;w=2, \"a#2\";q=9;w=3600, \"b\";q=3");
    assert_eq!(status, "\"a\";r=1;t=1, \"a#2\";r=8;t=400, \"b\";r=2");
}

#[test]
fn names_are_strings_of_structured_fields() {
    // A limit of one key has the key in its name, and keys can be anything.
    let rules = "rules: [{name: a, by: 'query(k)', limit: 1/s, overrides: {'\"b\" \\ é': 5/s}}]";
    let (filter, _) = filter(rules);
    let response = passed(filter.check(&get("/?k=%22b%22+%5C+%C3%A9"), client())).answer(empty());
    assert_eq!(response.headers()["ratelimit-policy"], "\"a@\\\"b\\\" \\\\ %C3%A9\";q=5;w=1");
    assert_eq!(response.headers()["ratelimit"], "\"a@\\\"b\\\" \\\\ %C3%A9\";r=4;t=1");
}

#[test]
fn no_more_than_eight_are_told() {
    let rules = (0..12)
        .map(|nth| format!("{{name: r{nth}, limit: {}/{}s}}", nth + 1, (nth + 1) * (nth + 1)))
        .collect::<Vec<_>>()
        .join(", ");
    let (policy, status) = first(&format!("rules: [{rules}]"));
    assert_eq!((policy.split(", ").count(), status.split(", ").count()), (8, 8));
}

#[test]
fn what_no_rule_is_about_is_told_nothing() {
    assert_eq!(first("rules: [{name: a, match: {path: /b}, limit: 1/s}]"), ("-".to_owned(), "-".to_owned()));
}

#[test]
fn the_fields_are_chosen() {
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
        assert_eq!(head(&passed(filter.check(&get("/"), client())).answer(empty())), expected);
    }
    let gateway = "gateway: {rate_limit_headers: x, trusted_proxies: 10.0.0.0/8}";
    let (filter, _) = with_options(RULES, FilterOptions::of(&file(&format!("{gateway}\n{RULES}"))));
    assert_eq!(head(&passed(filter.check(&get("/"), client())).answer(empty())), format!("200\n{x}"));
    let headers =
        http::HeaderMap::from_iter([("x-forwarded-for".parse().unwrap(), HeaderValue::from_static("1.1.1.1"))]);
    assert_eq!(filter.client(&headers, [10, 0, 0, 1].into()).to_string(), "1.1.1.1");
}

#[test]
fn the_reset_of_a_denied_request_is_when_the_limit_has_recovered_and_the_retry_may_be_earlier() {
    let options = FilterOptions::default().rate_limit_headers(RateLimitHeaders::Both);
    let (filter, _) = with_options("rules: [{name: a, limit: 2/h}, {name: b, limit: 5/h}]", options);
    for _ in 0..2 {
        passed(filter.check(&get("/"), client())).begin();
    }
    let told = head(&refused(filter.check(&get("/"), client())).into_response());
    assert!(told.contains("ratelimit: \"a\";r=0;t=3600, \"b\";r=3;t=1440"), "{told}");
    assert!(told.contains("x-ratelimit-limit: 2\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 3600"), "{told}");
    assert!(told.contains("retry-after: 1800"), "{told}");
}

#[test]
fn limits_of_those_behind_are_told_too() {
    let (filter, _) = filter("rules: [{name: a, limit: 2/h}]");
    let own =
        Response::builder().header("ratelimit", "\"own\";r=1").body(http_body_util::Empty::<&[u8]>::new()).unwrap();
    let response = passed(filter.check(&get("/"), client())).answer(own);
    let all = response.headers().get_all("ratelimit").iter().collect::<Vec<_>>();
    assert_eq!(all, ["\"own\";r=1", "\"a\";r=1;t=1800"]);
}

#[test]
fn a_limit_that_changes_is_told_as_it_is() {
    let (filter, _) = filter("rules: [{name: a, limit: 2/h}]");
    let policy = || {
        let response = passed(filter.check(&get("/"), client())).answer(empty());
        response.headers()["ratelimit-policy"].to_str().unwrap().to_owned()
    };
    assert_eq!(policy(), "\"a\";q=2;w=3600");
    filter.engine().set_rules(&file("rules: [{name: a, limit: 9/min}]"));
    assert_eq!(policy(), "\"a\";q=9;w=60");
}
