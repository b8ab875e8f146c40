//! The scheme of a request: what the front end knows, and what a trusted proxy reports.

use diana::rules::{Attribute, Attributes};
use diana_http::{HttpAttributes, RequestScheme};
use http::Request;

/// Returns the scheme of a request with these values of `X-Forwarded-Proto`.
fn scheme(known: RequestScheme, target: &str, forwarded: &[&str]) -> Option<String> {
    let request = Request::get(target).header("forwarded", "for=192.0.2.1;proto=https");
    let request =
        forwarded.iter().fold(request, |request, value| request.header("x-forwarded-proto", value.as_bytes()));
    let request = request.body(()).unwrap();
    HttpAttributes::of(&request, None).with_scheme(known).get(&Attribute::Scheme).map(String::from)
}

#[test]
fn the_target_and_the_headers_do_not_decide() {
    for target in ["/", "https://shop.example.com/"] {
        for forwarded in [&[][..], &["https"]] {
            assert_eq!(scheme(RequestScheme::default(), target, forwarded), None);
            assert_eq!(scheme(RequestScheme::of("http"), target, forwarded).as_deref(), Some("http"));
        }
    }
}

#[test]
fn a_reported_scheme_wins_and_an_ambiguous_one_is_several() {
    for (forwarded, expected) in [
        (&[][..], "http"),
        (&["https"], "https"),
        (&[" HTTPS "], "https"),
        (&["Http"], "http"),
        (&["wss"], "https"),
        (&["ws"], "http"),
        (&[""], "(several)"),
        (&["ftp"], "(several)"),
        (&["https, http"], "(several)"),
        (&["https,https"], "(several)"),
        (&["https", "https"], "(several)"),
        (&["https", "http"], "(several)"),
        (&["httpé"], "(several)"),
    ] {
        let known = RequestScheme::of("http").or_forwarded();
        assert_eq!(scheme(known, "/", forwarded).as_deref(), Some(expected), "{forwarded:?}");
    }
    assert_eq!(scheme(RequestScheme::default().or_forwarded(), "/", &[]), None);
}
