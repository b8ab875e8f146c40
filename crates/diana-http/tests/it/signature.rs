//! Signed requests: which pass, and which do not.

use diana::{ManualClock, Timestamp};
use diana_http::{FilterChain, HttpFilter, SignatureFilter};
use futures_util::FutureExt;
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;
use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

const HEADER: HeaderName = HeaderName::from_static("x-signature");

fn filter(clock: &ManualClock) -> SignatureFilter {
    SignatureFilter::new(b"key", HEADER, Duration::from_secs(300)).with_clock(clock.clone())
}

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_secs(1_700_000_000))
}

/// Returns the response to a request with this signature; `None` if it passes.
fn denial_detail(filter: &SignatureFilter, method: &str, path: &str, signatures: &[&str]) -> Option<String> {
    let mut request = Request::builder().method(method).uri(path);
    for signature in signatures {
        request = request.header(HEADER, *signature);
    }
    let (mut head, ()) = request.body(()).unwrap().into_parts();
    let denial = filter.check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().err()?;
    assert_eq!(denial.status(), 401);
    assert_eq!(denial.headers()["content-type"], "application/problem+json");
    let body = denial.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 401);
    Some(problem["detail"].as_str().unwrap().to_owned())
}

#[test]
fn accepts_a_signature_of_openssl() {
    // printf 'POST\n/orders?dry=1\n1700000000' | openssl dgst -sha256 -hmac key
    let signature = "t=1700000000,v1=c741814c78c7c715d8bb822af55c952d108aee691bd893a4fb61b6f9785223be";
    assert_eq!(filter(&clock()).sign(&Method::POST, "/orders?dry=1"), signature);
    assert_eq!(denial_detail(&filter(&clock()), "POST", "/orders?dry=1", &[signature]), None);
}

#[test]
fn a_signature_of_another_method_path_query_time_or_secret_is_denied() {
    let filter = filter(&clock());
    let signature = filter.sign(&Method::POST, "/orders?dry=1");
    let mismatch = Some("the signature does not match the method, path, query and time".to_owned());
    assert_eq!(denial_detail(&filter, "PUT", "/orders?dry=1", &[&signature]), mismatch);
    assert_eq!(denial_detail(&filter, "POST", "/order?dry=1", &[&signature]), mismatch);
    assert_eq!(denial_detail(&filter, "POST", "/orders?dry=0", &[&signature]), mismatch);
    assert_eq!(denial_detail(&filter, "POST", "/orders", &[&signature]), mismatch);
    assert_eq!(denial_detail(&filter, "POST", "/orders?dry=1", &[&signature.replace("t=17", "t=16")]), mismatch);
    let other = SignatureFilter::new(b"kez", HEADER, Duration::from_secs(300)).with_clock(clock());
    assert_eq!(denial_detail(&other, "POST", "/orders?dry=1", &[&signature]), mismatch);
}

#[test]
fn signatures_of_the_past_and_the_future_are_denied() {
    let clock = clock();
    let (now, late) = (filter(&clock), filter(&ManualClock::at(Timestamp::from_secs(1_700_000_301))));
    let later = late.sign(&Method::GET, "/");
    let old = Some("the signature is too old, or its time is in the future".to_owned());
    assert_eq!(denial_detail(&now, "GET", "/", &[&later]), old);
    clock.advance(Duration::from_secs(1));
    assert_eq!(denial_detail(&now, "GET", "/", &[&later]), None);
    clock.advance(Duration::from_secs(600));
    assert_eq!(denial_detail(&now, "GET", "/", &[&later]), None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(denial_detail(&now, "GET", "/", &[&later]), old);
}

#[test]
fn uses_the_wall_clock_by_default() {
    #[allow(clippy::disallowed_methods, reason = "this is what it is compared with")]
    let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let filter = SignatureFilter::new(b"key", HEADER, Duration::from_secs(300));
    let before = wall();
    let signature = filter.sign(&Method::GET, "/");
    let after = wall();
    let (time, _) = signature.strip_prefix("t=").unwrap().split_once(',').unwrap();
    assert!((before..=after).contains(&time.parse::<u64>().unwrap()), "{before} {signature} {after}");
    assert_eq!(denial_detail(&filter, "GET", "/", &[&signature]), None);
}

#[test]
fn invalid_signatures_are_denied_with_the_reason() {
    let filter = filter(&clock());
    let good = filter.sign(&Method::GET, "/");
    assert_eq!(denial_detail(&filter, "GET", "/", &[]).unwrap(), "missing signature");
    let cut = &good[..good.len() - 1];
    let spaced = good.replace(",v1", ", v1");
    let signed = good.replace("t=", "t=+");
    for invalid in ["", "v1=00", "t=,v1=", cut, &spaced, &signed, "t=1700000000,v1=zz"] {
        let detail = denial_detail(&filter, "GET", "/", &[invalid]).unwrap();
        assert!(detail.starts_with("invalid signature, expected `t="), "{invalid}: {detail}");
    }
    // Two headers are ambiguous: an intermediary may use the other one.
    let detail = denial_detail(&filter, "GET", "/", &[&good, &good]).unwrap();
    assert!(detail.starts_with("invalid signature, expected `t="), "{detail}");
}

#[test]
fn a_chain_ends_with_the_first_filter_that_denies() {
    let first = filter(&clock());
    let other = SignatureFilter::new(b"other", HeaderName::from_static("x-other"), Duration::from_secs(1));
    let signature = first.sign(&Method::GET, "/");
    let chain = FilterChain::new().and(first).and(other);
    assert_eq!(format!("{chain:?}"), r#"["signature", "signature"]"#);
    let (mut head, ()) = Request::get("/").header(HEADER, signature).body(()).unwrap().into_parts();
    let denial = chain.check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().unwrap_err();
    assert_eq!((denial.by, denial.response.status().as_u16()), ("signature", 401));
    assert!(FilterChain::new().check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().is_ok());
}
