//! The attributes of an HTTP request for rules.

use diana::rules::{Attribute, Attributes};
use diana_http::HttpAttributes;
use http::Request;
use std::borrow::Cow;

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
fn finds_attributes_by_name() {
    let request = Request::post("/a/../sms;v=1?to=1&to=2&empty=&bare&plus=a+b%2Bc&na%6De=x&bad=%ff&%26=and")
        .header("Host", "api.example.com:8080")
        .header("X-Account-Id", "alice")
        .header("X-Account-Id", "bob")
        .header("X-Latin", &b"caf\xe9"[..])
        .header("Cookie", "a=1; plan=\"free\"; b = 2 ;bare; c=x=y")
        .header("Cookie", "a=2; d=4")
        .body(())
        .unwrap();
    let attributes = HttpAttributes::of(&request, Some([203, 0, 113, 7].into()));
    for (attribute, expected) in [
        (Attribute::Ip, Some("203.0.113.7")),
        (Attribute::Method, Some("POST")),
        (Attribute::Path, Some("/sms")),
        (Attribute::Host, Some("api.example.com")),
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
        (cookie("PLAN"), Some("(several)")),
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
        assert_eq!(attributes.get(&attribute).as_deref(), expected, "{attribute}");
    }
    assert_eq!(attributes.ip(), Some([203, 0, 113, 7].into()));
}

#[test]
fn the_host_of_the_uri_takes_precedence_over_the_header() {
    let request = Request::get("http://user@api.example.com:8080/").header("host", "other.example").body(()).unwrap();
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Host).as_deref(), Some("api.example.com"));
    let request = Request::get("/").body(()).unwrap();
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Host), None);
    assert_eq!(HttpAttributes::of(&request, None).get(&Attribute::Ip), None);
}

#[test]
fn a_head_has_the_same_attributes() {
    let (head, ()) = Request::get("/a?b=c").header("d", "e").body(()).unwrap().into_parts();
    let attributes = HttpAttributes::of_head(&head, None);
    let all = [Attribute::Method, Attribute::Path, query("b"), header("d")]
        .map(|attribute| attributes.get(&attribute).unwrap());
    assert_eq!(all, ["GET", "/a", "c", "e"]);
}

#[test]
fn a_path_is_decoded_and_has_other_forms() {
    let forms = |path: &str| {
        let request = Request::get(path).body(()).unwrap();
        let attributes = HttpAttributes::of(&request, None);
        (attributes.get(&Attribute::Path).unwrap().into_owned(), attributes.other_paths().to_vec())
    };
    let is = |path: &str, others: &[&str]| {
        (path.to_owned(), others.iter().map(|form| (*form).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(forms("/a/b"), is("/a/b", &[]));
    assert_eq!(forms("/a//%62"), is("/a/b", &[]));
    assert_eq!(forms("//a/%62"), is("/a/b", &["/a/b", "/b"]));
    assert_eq!(forms("/a;v/b"), is("/a/b", &["/a/b", "/a", "/a;v/b"]));
    assert_eq!(forms("/a%2fb"), is("/a/b", &["/a%2Fb"]));
    assert_eq!(forms("/a;v=1"), is("/a", &["/a", "/a;v=1"]));
    assert_eq!(forms("/a\\b"), is("/a/b", &["/a/b", "/a\\b"]));
    assert_eq!(forms("/a%3bv"), is("/a", &["/a%3Bv", "/a;v"]));
    let (path, others) = forms("/a;x%2f\\b%5cc%3by");
    assert_eq!((&*path, &*others[0]), ("/a", "/a"));
    assert!(others.len() < 16, "{others:?}");
}

#[test]
fn trims_values_and_normalizes_methods() {
    let request = Request::builder().method("pOsT").uri("/").header("x-account", " alice\t").header("host", " a:80 ");
    let request = request.body(()).unwrap();
    let attributes = HttpAttributes::of(&request, None);
    assert_eq!(attributes.get(&header("x-account")).as_deref(), Some("alice"));
    assert_eq!(attributes.get(&Attribute::Host).as_deref(), Some("a"));
    assert_eq!(attributes.get(&Attribute::Method).as_deref(), Some("POST"));
    let custom = Request::builder().method("purge").uri("/").body(()).unwrap();
    assert_eq!(HttpAttributes::of(&custom, None).get(&Attribute::Method).as_deref(), Some("purge"));
}

/// Rack 2 separates parameters by `;` as well; others do not.
#[test]
fn pairs_next_to_a_semicolon_are_ambiguous() {
    let value = |uri: &str, name: &str| {
        let request = Request::get(uri).body(()).unwrap();
        HttpAttributes::of(&request, None).get(&query(name)).map(Cow::into_owned)
    };
    // Long queries are indexed, short ones are not.
    for more in [String::new(), format!("&pad={}", "x".repeat(300))] {
        let value = |text: &str, name: &str| value(&format!("/?{text}{more}"), name);
        for text in ["x=1;k=real", "k=real;x=1", "k=real;junk", ";k=real", "k=real;", "x=1&y;k=real", "k=a;k=a", "k;x"]
        {
            assert_eq!(value(text, "k").as_deref(), Some("(several)"), "{text}");
        }
        assert_eq!(value("k=real&x=1;y=2", "k").as_deref(), Some("real"));
        assert_eq!(value("k=real&x=1;k=other", "k").as_deref(), Some("(several)"));
        assert_eq!(value("k=a%3Bb", "k").as_deref(), Some("a;b"), "an escaped semicolon is not a separator");
        assert_eq!(value("k=1&k=2", "k").as_deref(), Some("(several)"));
        assert_eq!(value("k=1&%6b=%31", "k").as_deref(), Some("1"));
        assert_eq!(value("a+b=c+d", "a b").as_deref(), Some("c d"));
        assert_eq!(value("x=1", "k"), None);
    }
}
