//! What rules can ask about an HTTP request.

use diana::rules::{Attribute, Attributes};
use diana_http::HttpAttributes;
use http::Request;

fn header(name: &str) -> Attribute {
    Attribute::Header(name.into())
}

fn cookie(name: &str) -> Attribute {
    Attribute::Cookie(name.into())
}

fn query(name: &str) -> Attribute {
    Attribute::Query(name.into())
}

#[test]
fn the_parts_of_a_request_are_found_by_name() {
    let request = Request::post("/a/../sms;v=1?to=1&to=2&empty=&bare&plus=a+b%2Bc&na%6De=x&bad=%ff&%26=and")
        .header("Host", "api.example.com:8080")
        .header("X-Account-Id", "alice")
        .header("X-Account-Id", "bob")
        .header("X-Latin", &b"caf\xe9"[..])
        .header("Cookie", "a=1; plan=\"free\"; b = 2 ;bare; c=x=y")
        .header("Cookie", "a=2; d=4")
        .body(())
        .unwrap();
    let seen = HttpAttributes::of(&request, Some([203, 0, 113, 7].into()));
    for (attribute, expected) in [
        (Attribute::Ip, Some("203.0.113.7")),
        (Attribute::Method, Some("POST")),
        (Attribute::Path, Some("/sms")),
        (Attribute::Host, Some("api.example.com:8080")),
        (header("x-account-id"), Some("(several)")),
        (header("x-latin"), Some("caf\u{fffd}")),
        (header("x-none"), None),
        (header("no name"), None),
        (cookie("a"), Some("(several)")),
        (cookie("plan"), Some("free")),
        (cookie("b"), Some("2")),
        (cookie("c"), Some("x=y")),
        (cookie("d"), Some("4")),
        (cookie("bare"), None),
        (cookie("A"), None),
        (query("to"), Some("(several)")),
        (query("empty"), Some("")),
        (query("bare"), Some("")),
        (query("plus"), Some("a b+c")),
        (query("name"), Some("x")),
        (query("bad"), Some("\u{fffd}")),
        (query("&"), Some("and")),
        (query("none"), None),
        (Attribute::Named("account".into()), None),
        (Attribute::Jwt("sub".into()), None),
    ] {
        assert_eq!(seen.get(&attribute).as_deref(), expected, "{attribute}");
    }
    assert_eq!(seen.ip(), Some([203, 0, 113, 7].into()));
}

#[test]
fn the_host_of_the_uri_wins_over_the_header() {
    let request = Request::get("http://user@api.example.com:8080/").header("host", "other.example").body(()).unwrap();
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Host).as_deref(), Some("api.example.com"));
    let request = Request::get("/").body(()).unwrap();
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Host), None);
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Ip), None);
}

#[test]
fn the_head_of_a_request_says_the_same() {
    let (head, ()) = Request::get("/a?b=c").header("d", "e").body(()).unwrap().into_parts();
    let seen = HttpAttributes::of_head(&head, None);
    let all =
        [Attribute::Method, Attribute::Path, query("b"), header("d")].map(|attribute| seen.get(&attribute).unwrap());
    assert_eq!(all, ["GET", "/a", "c", "e"]);
}
