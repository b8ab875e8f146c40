//! Which requests share a key, and the problems that are reported for invalid keys.

use super::*;
use crate::registry::Registry;
use diana_document::Document;
use std::borrow::Cow;

fn read(text: &str) -> Result<KeySpec, String> {
    let document = Document::new("by.yaml", text);
    let tree = document.parse().map_err(|error| error.to_string())?;
    let mut problems = Vec::new();
    KeySpec::read(&tree, &Registry::default(), &mut problems).ok_or_else(|| document.problems(problems).to_string())
}

/// A request from this address, with a header.
struct From<'a>(&'a str, &'a str);

impl Attributes for From<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Ip => Some(self.0.into()),
            Attribute::Header(_) => Some(self.1.into()),
            _ => None,
        }
    }
}

fn key(by: &str, request: &From<'_>) -> Vec<u8> {
    let mut key = KeyBytes::new();
    read(by).unwrap().key(request, &mut key).unwrap();
    key
}

#[test]
fn keys_round_trip() {
    for text in [
        "global",
        "account",
        "device",
        "resource",
        "ip",
        "ip/24",
        "ip/56",
        "ip/24/48",
        "ip/32/24",
        "host",
        "method",
        "request",
        "header(x-api-key)",
        "cookie(Session)",
        "query(q)",
        "param(id)",
    ] {
        assert_eq!(read(text).unwrap().to_string(), text);
    }
    assert_eq!(read("[account, ip/24]").unwrap().to_string(), "account, ip/24");
    assert_eq!(read("header(X-Api-Key)").unwrap(), read("header(x-api-key)").unwrap());
    assert!(read("global").unwrap().is_everyone());
    assert!(read("request").unwrap().is_each_request());
}

#[test]
fn reports_invalid_keys_with_a_hint() {
    for (text, expected) in [
        ("acount", "did you mean `account`?"),
        ("headr", "did you mean `header(NAME)`?"),
        ("headr(x)", "did you mean `header(x)`?"),
        ("header()", "missing name in `header()`"),
        ("header", "did you mean `header(NAME)`?"),
        ("magic", "expected global, account, device"),
        ("ip/0", "invalid prefix length"),
        ("ip/129", "invalid prefix length"),
        ("ip/x", "invalid prefix length"),
        ("ip/24/", "invalid prefix length"),
        ("ip/24/129", "invalid prefix length"),
        ("ip/+24", "invalid prefix length"),
        ("[]", "`by` is empty"),
        ("[global, ip]", "`global` cannot be combined with other keys"),
        ("[ip, ip]", "duplicate key `ip`"),
        ("jwt(sub)", "needs verified tokens"),
        ("{ip: 24}", "invalid `by`: expected a string, found a map"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}:\n{error}");
    }
}

#[test]
fn addresses_of_one_client_have_one_key() {
    let ip = |text| key("ip", &From(text, ""));
    assert_ne!(ip("203.0.113.7"), ip("203.0.113.8"));
    assert_eq!(ip("203.0.113.7"), ip("::ffff:203.0.113.7"));
    // One customer has a whole /64.
    assert_eq!(ip("2001:db8:1:2:3::1"), ip("2001:db8:1:2:ffff::9"));
    assert_ne!(ip("2001:db8:1:2::1"), ip("2001:db8:1:3::1"));
    let net = |text| key("ip/24", &From(text, ""));
    assert_eq!(net("203.0.113.7"), net("203.0.113.200"));
    assert_ne!(net("203.0.113.7"), net("203.0.114.7"));
    let both = |text| key("ip/24/48", &From(text, ""));
    assert_eq!(both("203.0.113.7"), net("203.0.113.200"));
    assert_eq!(both("2001:db8:1:2::1"), both("2001:db8:1:9::1"));
    assert_eq!(read("ip/24").unwrap().key_of(&["203.0.113.0/24"]), net("203.0.113.200"));
    assert_eq!(key("ip/48", &From("2001:db8:1:2::1", "")), key("ip/48", &From("2001:db8:1:9::1", "")));
    assert!(read("ip").unwrap().key(&From("unix:", ""), &mut KeyBytes::new()).is_err(), "the request has no address");
}

#[test]
fn combinations_have_distinct_keys() {
    let both = |first: &str, second: &str| {
        let by = read("[header(a), ip]").unwrap();
        by.key_of(&[first, second])
    };
    assert_ne!(both("ab", "1.2.3.4"), both("a", "b1.2.3.4"));
    assert_ne!(both("", "abc"), both("abc", ""));
    assert_ne!(both("a2:bc", "d"), both("a", "bc1:d"));
    assert_eq!(key("global", &From("1.2.3.4", "")), b"");
}

#[test]
fn a_request_without_the_attribute_has_no_key() {
    let mut key = b"before".to_vec();
    let account = read("account").unwrap();
    let missing = account.key(&From("1.2.3.4", ""), &mut key).unwrap_err();
    assert_eq!(missing.to_string(), "missing account");
    assert!(
        read("[ip, header(x)]").unwrap().key(&From("1.2.3.4", ""), &mut key).is_err(),
        "an empty header counts as missing"
    );
    assert_eq!(&key[..], b"before");
    let needed = read("[account, ip/24]").unwrap();
    let needed = needed.attributes().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(needed, ["account", "ip"]);
}

#[test]
fn repeated_slashes_do_not_change_the_key() {
    struct Path(&'static str);
    impl Attributes for Path {
        fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
            (*attribute == Attribute::Path).then_some(self.0.into())
        }
    }
    let key = |path| {
        let mut key = KeyBytes::new();
        read("resource").unwrap().key(&Path(path), &mut key).unwrap();
        key
    };
    for path in ["/search/a", "//search/a", "/search//a/", "/search/a//"] {
        assert_eq!(key(path), b"/search/a");
    }
    assert_eq!(key("/"), b"/");
    assert_eq!(key("///"), b"/");
    assert_eq!(read("resource").unwrap().key_of(&["/search/a/"]), b"/search/a");
    assert_eq!(read("resource").unwrap().key_of(&["/caf%c3%a9/a|b"]), "/café/a%7Cb".as_bytes());
}
