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
fn said(filter: &SignatureFilter, method: &str, path: &str, signatures: &[&str]) -> Option<String> {
    let mut request = Request::builder().method(method).uri(path);
    for signature in signatures {
        request = request.header(HEADER, *signature);
    }
    let (mut head, ()) = request.body(()).unwrap().into_parts();
    let refused = filter.check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().err()?;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let body = refused.into_body().collect().now_or_never().unwrap().unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["status"], 401);
    Some(problem["detail"].as_str().unwrap().to_owned())
}

#[test]
fn a_signature_made_elsewhere_is_known() {
    // printf 'POST\n/orders?dry=1\n1700000000' | openssl dgst -sha256 -hmac key
    let signature = "t=1700000000,v1=c741814c78c7c715d8bb822af55c952d108aee691bd893a4fb61b6f9785223be";
    assert_eq!(filter(&clock()).sign(&Method::POST, "/orders?dry=1"), signature);
    assert_eq!(said(&filter(&clock()), "POST", "/orders?dry=1", &[signature]), None);
}

#[test]
fn another_method_path_query_time_or_secret_is_refused() {
    let filter = filter(&clock());
    let signature = filter.sign(&Method::POST, "/orders?dry=1");
    let wrong = Some("the signature is not of this method, path, query and time".to_owned());
    assert_eq!(said(&filter, "PUT", "/orders?dry=1", &[&signature]), wrong);
    assert_eq!(said(&filter, "POST", "/order?dry=1", &[&signature]), wrong);
    assert_eq!(said(&filter, "POST", "/orders?dry=0", &[&signature]), wrong);
    assert_eq!(said(&filter, "POST", "/orders", &[&signature]), wrong);
    assert_eq!(said(&filter, "POST", "/orders?dry=1", &[&signature.replace("t=17", "t=16")]), wrong);
    let other = SignatureFilter::new(b"kez", HEADER, Duration::from_secs(300)).with_clock(clock());
    assert_eq!(said(&other, "POST", "/orders?dry=1", &[&signature]), wrong);
}

#[test]
fn an_old_signature_is_refused_and_so_is_one_of_a_time_to_come() {
    let clock = clock();
    let (now, late) = (filter(&clock), filter(&ManualClock::at(Timestamp::from_secs(1_700_000_301))));
    let of_later = late.sign(&Method::GET, "/");
    let old = Some("the signature is too old, or of a time to come".to_owned());
    assert_eq!(said(&now, "GET", "/", &[&of_later]), old);
    clock.advance(Duration::from_secs(1));
    assert_eq!(said(&now, "GET", "/", &[&of_later]), None);
    clock.advance(Duration::from_secs(600));
    assert_eq!(said(&now, "GET", "/", &[&of_later]), None);
    clock.advance(Duration::from_secs(1));
    assert_eq!(said(&now, "GET", "/", &[&of_later]), old);
}

#[test]
fn without_another_clock_it_goes_by_the_wall_clock() {
    #[allow(clippy::disallowed_methods, reason = "this is what it is compared with")]
    let wall = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let filter = SignatureFilter::new(b"key", HEADER, Duration::from_secs(300));
    let before = wall();
    let signature = filter.sign(&Method::GET, "/");
    let after = wall();
    let (time, _) = signature.strip_prefix("t=").unwrap().split_once(',').unwrap();
    assert!((before..=after).contains(&time.parse::<u64>().unwrap()), "{before} {signature} {after}");
    assert_eq!(said(&filter, "GET", "/", &[&signature]), None);
}

#[test]
fn what_is_no_signature_is_told() {
    let filter = filter(&clock());
    let good = filter.sign(&Method::GET, "/");
    assert_eq!(said(&filter, "GET", "/", &[]).unwrap(), "the request is not signed");
    let cut = &good[..good.len() - 1];
    let spaced = good.replace(",v1", ", v1");
    let signed = good.replace("t=", "t=+");
    for wrong in ["", "v1=00", "t=,v1=", cut, &spaced, &signed, "t=1700000000,v1=zz"] {
        let said = said(&filter, "GET", "/", &[wrong]).unwrap();
        assert!(said.starts_with("the signature can't be read"), "{wrong}: {said}");
    }
    // Two are none: whoever stands between might look at the other one.
    let said = said(&filter, "GET", "/", &[&good, &good]).unwrap();
    assert!(said.starts_with("the signature can't be read"), "{said}");
}

#[test]
fn a_chain_asks_in_order_and_ends_with_the_first_that_refuses() {
    let sure = filter(&clock());
    let other = SignatureFilter::new(b"other", HeaderName::from_static("x-other"), Duration::from_secs(1));
    let signature = sure.sign(&Method::GET, "/");
    let chain = FilterChain::new().and(sure).and(other);
    assert_eq!(format!("{chain:?}"), r#"["signature", "signature"]"#);
    let (mut head, ()) = Request::get("/").header(HEADER, signature).body(()).unwrap().into_parts();
    let refused = chain.check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().unwrap_err();
    assert_eq!((refused.by, refused.response.status().as_u16()), ("signature", 401));
    assert!(FilterChain::new().check(&mut head, Ipv4Addr::LOCALHOST.into()).now_or_never().unwrap().is_ok());
}
