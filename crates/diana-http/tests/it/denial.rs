//! Denials in the format that the client accepts.

use crate::support::{body, client, denied, filter, get, granted, head};
use base64::Engine as _;
use http::{Method, Request};
use prost::Message;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";

/// Returns the response to the second of two requests with these rules.
fn second(rules: &str, request: &Request<()>) -> http::Response<http_body_util::Full<bytes::Bytes>> {
    let (filter, _) = filter(rules);
    granted(filter.check(&get("/"), client())).begin();
    denied(filter.check(request, client())).into_response()
}

fn accepting(accept: &'static str) -> Request<()> {
    Request::get("/").header("accept", accept).body(()).unwrap()
}

#[test]
fn the_format_is_the_one_that_the_client_prefers() {
    for (accept, format) in [
        ("", "application/problem+json"),
        ("*/*", "application/problem+json"),
        ("application/json", "application/problem+json"),
        (BROWSER, "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("TEXT/HTML; q=0.1", "text/html; charset=utf-8"),
        ("text/html;q=0", "application/problem+json"),
        ("text/html;q=0.5, application/json", "application/problem+json"),
        ("text/html;q=0.5, application/problem+json;q=0.501", "application/problem+json"),
        ("application/json;q=0.5, text/html;q=0.9", "text/html; charset=utf-8"),
        ("application/json, text/html", "text/html; charset=utf-8"),
        ("text/htmlx", "application/problem+json"),
    ] {
        let response = second("rules: [{name: a, limit: 1/h}]", &accepting(accept));
        assert_eq!(response.headers()["content-type"], format, "{accept}");
    }
}

#[test]
fn problems_name_the_violated_policies() {
    let parsed = |rules: &str| -> serde_json::Value { serde_json::from_str(&body(second(rules, &get("/")))).unwrap() };
    let quota = parsed("rules: [{name: a, limit: 1/h, status: 429}, {name: c, limit: 9/h}]");
    assert_eq!(quota["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!((&quota["status"], &quota["violated-policies"]), (&429.into(), &serde_json::json!(["a"])));
    let (filter, _) = filter(r#"rules: [{name: a, by: ip, limit: 9/h, overrides: {203.0.113.7: 1/h}}]"#);
    granted(filter.check(&get("/"), client())).begin();
    let problem: serde_json::Value =
        serde_json::from_str(&body(denied(filter.check(&get("/"), client())).into_response())).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["a@203.0.113.7"]));
    let problem = parsed("rules: [{name: a, limit: 1/h}, {name: b, limit: 1/day, status: 429}]");
    assert_eq!(problem["violated-policies"], serde_json::json!(["a", "b"]));
    assert_eq!(problem["status"], 429, "the limit with the longest wait sets the status");
    let problem = parsed("rules: [{name: a, limit: 1/h}]");
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!((&problem["status"], &problem["violated-policies"]), (&503.into(), &serde_json::json!(["a"])));
}

#[test]
fn deny_lists_and_missing_keys_are_not_quotas() {
    let (filter, _) = filter(
        "rules: [{name: a, by: ip, deny: [203.0.113.0/24], match: {path: /list}, status: 403}, {name: b, by: 'header(x)', limit: 1/h, missing: deny, status: 400}]",
    );
    let response = denied(filter.check(&get("/list"), client())).into_response();
    assert_eq!(head(&response), "403\ncontent-type: application/problem+json");
    assert_eq!(
        body(response),
        "{\"type\":\"about:blank\",\"title\":\"Forbidden\",\"status\":403,\
        \"detail\":\"the request is on a deny list\"}\n"
    );
    let response = denied(filter.check(&get("/"), client())).into_response();
    assert_eq!(
        body(response),
        "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\"detail\":\"the request has no header(x)\"}\n"
    );
}

#[test]
fn retry_after_is_rounded_up_and_omitted_if_retrying_does_not_help() {
    for (limit, retry_after) in [
        ("limit: 1/h", Some("3600")),
        ("limit: 10/s, burst: 1", Some("1")),
        ("limit: 1/1500ms", Some("2")),
        ("total: 1", None),
    ] {
        let response = second(&format!("rules: [{{name: a, {limit}}}]"), &get("/"));
        assert_eq!(response.headers().get("retry-after").map(|value| value.to_str().unwrap()), retry_after, "{limit}");
    }
    let (filter, _) = filter("rules: [{name: a, concurrent: 1}]");
    let _first = granted(filter.check(&get("/"), client()));
    let response = denied(filter.check(&get("/"), client())).into_response();
    assert_eq!(response.headers()["retry-after"], "1", "the time is unknown");
}

#[test]
fn a_page_has_the_retry_time() {
    for (limit, status, text) in [
        (
            "1/s",
            429,
            "Too many requests</h1>\n<p>There were too many requests in a short time. Please try again in a second.",
        ),
        ("1/90s", 429, "try again in 90 seconds."),
        ("1/2h", 429, "try again in 2 hours."),
        ("1/90min", 429, "try again in 90 minutes."),
        ("1/3day", 429, "try again in 3 days."),
        (
            "1/min",
            503,
            "Service overloaded</h1>\n<p>The service receives more requests than it can handle. Please try again in 60 seconds.",
        ),
    ] {
        let rules = format!("rules: [{{name: a, limit: {limit}, status: {status}}}]");
        let response = second(&rules, &accepting(BROWSER));
        assert_eq!(response.status(), status);
        let page = body(response);
        assert!(page.contains(text), "{text}: {page}");
        assert!(page.contains(&format!("<small>{status} &middot; a</small>")), "{page}");
        assert!(page.starts_with("<!doctype html>"), "{page}");
        for placeholder in ["{title}", "{message}", "{status}", "{rule}"] {
            assert!(!page.contains(placeholder), "{page}");
        }
        for external in ["http://", "https://", "src=", "<script", "<link"] {
            assert!(!page.contains(external), "external resource: {external}");
        }
    }
    let page = body(second("rules: [{name: a, total: 1}]", &accepting(BROWSER)));
    assert!(page.contains("Retrying does not help."), "{page}");
}

#[test]
fn a_rule_can_have_a_custom_response() {
    let rules = "rules: [{name: a, limit: 1/h, status: 420, answer: {type: text/plain, text: 'slow down'}}]";
    for request in [get("/"), accepting(BROWSER)] {
        let response = second(rules, &request);
        assert_eq!(
            head(&response),
            "420\ncontent-type: text/plain\nratelimit-policy: \"a\";q=1;w=3600\nratelimit: \"a\";r=0;t=3600\nretry-after: 3600"
        );
        assert_eq!(body(response), "slow down");
    }
    let listed = "answer: {type: text/plain, text: 'not you'}\nrules: [{name: a, by: ip, deny: [203.0.113.7]}]";
    let (filter, _) = filter(listed);
    assert_eq!(body(denied(filter.check(&get("/"), client())).into_response()), "not you");
}

#[test]
fn a_changed_custom_response_applies() {
    let rules = |text: &str| format!("rules: [{{name: a, limit: 1/h, answer: {{type: text/plain, text: '{text}'}}}}]");
    let (filter, _) = filter(&rules("slow down"));
    granted(filter.check(&get("/"), client())).begin();
    let response = || body(denied(filter.check(&get("/"), client())).into_response());
    assert_eq!(response(), "slow down");
    filter.engine().set_rules(&crate::support::file(&rules("slower")));
    assert_eq!(response(), "slower");
    filter.engine().set_rules(&crate::support::file("rules: [{name: a, limit: 1/h}]"));
    assert!(response().contains("\"status\":503"));
    filter.engine().set_rules(&crate::support::file("rules: [{name: a, limit: 1/h, status: 429}]"));
    assert!(response().contains("\"status\":429"));
}

/// The text is cached, and so must change with everything that the response depends on.
#[test]
fn http1_text_is_the_response() {
    let rules = |more: &str| format!("rules: [{{name: a, limit: 1/h{more}}}]");
    let (filter, clock) = filter(&rules(""));
    granted(filter.check(&get("/"), client())).begin();
    for (step, more) in ["", ", status: 429", ", answer: {type: text/plain, text: 'slow down'}"].into_iter().enumerate()
    {
        filter.engine().set_rules(&crate::support::file(&rules(more)));
        for _ in 0..2 {
            clock.advance(std::time::Duration::from_secs(step as u64));
            let mut text = b"HTTP/1.1".to_vec();
            let written = denied(filter.check(&get("/"), client()))
                .write_http1(&mut text, |text| text.extend_from_slice(b"date: x\r\n\r\n"));
            let response = denied(filter.check(&get("/"), client())).into_response();
            let status = response.status();
            let reason = status.canonical_reason().unwrap();
            let mut expected = format!("HTTP/1.1 {} {reason}\r\n", status.as_str());
            for (name, value) in response.headers() {
                expected.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
            }
            let body = body(response);
            expected.push_str(&format!("content-length: {}\r\ndate: x\r\n\r\n{body}", body.len()));
            assert_eq!(String::from_utf8(text).unwrap(), expected);
            assert_eq!(written, Some((status, body.len())));
        }
    }
    // Other formats are not cached: nothing is written.
    for request in [accepting(BROWSER), Request::head("/").body(()).unwrap()] {
        let mut text = Vec::new();
        assert_eq!(denied(filter.check(&request, client())).write_http1(&mut text, |_| ()), None);
        assert!(text.is_empty());
    }
}

#[test]
fn head_has_no_body() {
    for accept in ["*/*", BROWSER] {
        let request = Request::builder().method(Method::HEAD).uri("/").header("accept", accept).body(()).unwrap();
        let response = second("rules: [{name: a, limit: 1/h}]", &request);
        assert_eq!(response.headers()["retry-after"], "3600");
        assert_eq!(body(response), "");
    }
}

#[derive(Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Message)]
struct RetryInfo {
    #[prost(message, tag = "1")]
    delay: Option<Delay>,
}

#[derive(Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

fn call(content_type: &'static str) -> Request<()> {
    Request::post("/pkg.Service/Method").header("content-type", content_type).body(()).unwrap()
}

#[test]
fn a_grpc_call_gets_a_status_with_the_retry_time() {
    let response = second("rules: [{name: a, limit: 1/1500ms, status: 429}]", &call("application/grpc+proto"));
    assert_eq!(response.status(), 200);
    let header = |name: &str| response.headers()[name].to_str().unwrap();
    assert_eq!((header("content-type"), header("grpc-status")), ("application/grpc", "8"));
    assert_eq!(header("grpc-message"), "too many requests, retry in 2 seconds");
    assert_eq!(header("grpc-retry-pushback-ms"), "1500");
    assert_eq!((header("retry-after"), header("ratelimit")), ("2", "\"a\";r=0;t=2"));
    let details = base64::engine::general_purpose::STANDARD_NO_PAD.decode(header("grpc-status-details-bin")).unwrap();
    let status = Status::decode(&*details).unwrap();
    assert_eq!((status.code, &*status.message), (8, header("grpc-message")));
    assert_eq!(status.details[0].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    let delay = RetryInfo::decode(&*status.details[0].value).unwrap().delay.unwrap();
    assert_eq!((delay.seconds, delay.nanos), (1, 500_000_000));
    assert_eq!(body(response), "");
}

#[test]
fn a_permanent_grpc_denial_has_no_retry_time() {
    let response = second("rules: [{name: a, total: 1}]", &call("application/grpc"));
    assert_eq!(response.headers()["grpc-status"], "8");
    assert!(!response.headers().contains_key("grpc-retry-pushback-ms"));
    let (filter, _) = filter("rules: [{name: a, by: ip, deny: [203.0.113.7]}]");
    let response = denied(filter.check(&call("application/grpc-web+proto"), client())).into_response();
    assert_eq!(response.headers()["grpc-status"], "7");
    assert_eq!(response.headers()["content-type"], "application/grpc-web");
}
