//! Tests of which requests are rejected.

use super::*;
use http::Request;

fn head(request: http::request::Builder) -> Parts {
    request.body(()).unwrap().into_parts().0
}

fn strict() -> HeadPolicy {
    HeadPolicy::new(SpellingPolicy::Deny, SpellingPolicy::Allow)
}

#[test]
fn rejects_invalid_requests() {
    let rejection =
        |request| check(&head(request), &strict()).err().map(|rejected| (rejected.status.as_u16(), rejected.detail));
    assert_eq!(rejection(Request::get("/").header("host", "a")), None);
    assert_eq!(rejection(Request::get("http://a/")), None);
    for host in ["a:", "a:80", "a:8080", "a-b.example:65535", "[::1]:80", "[::1]:", "[2001:db8::7]", "under_score"] {
        assert_eq!(rejection(Request::get("/").header("host", host)), None, "{host}");
    }
    for host in
        ["", "a/b", "[::1", "a:80:80", "a?b", "a:x", "a:-1", "a:80,x", "a:65536", ":80", "[a]", "[::1]x", "a..b"]
    {
        assert_eq!(rejection(Request::get("/").header("host", host)), Some((400, "invalid `Host` header")), "{host}");
    }
    for uri in ["http://a:x/", "http://a:65536/", "http://[a]:80/"] {
        if let Ok(request) = Request::get(uri).body(()) {
            let rejected = check(&request.into_parts().0, &strict()).unwrap_err();
            assert_eq!(
                (rejected.status.as_u16(), rejected.detail),
                (400, "invalid host in the request target"),
                "{uri}"
            );
        }
    }
    assert_eq!(rejection(Request::options("*").header("host", "a")), None);
    assert_eq!(rejection(Request::get("/").version(Version::HTTP_10)), None);
    assert_eq!(rejection(Request::get("/")), Some((400, "missing `Host` header")));
    assert_eq!(rejection(Request::get("/").version(Version::HTTP_2)), Some((400, "missing `Host` header")));
    for path in
        ["/a/../b", "/a/./b", "/%2e%2E/b", "/a/..;x/b", "/..", "/x%2f..%2fb", "/x/..%5Cb", "/x;%2f..%2fb", "/..%3bx"]
    {
        assert_eq!(
            rejection(Request::get(path).header("host", "a")),
            Some((400, "the path contains a `.` or `..` segment")),
            "{path}"
        );
    }
    assert_eq!(
        rejection(Request::get("/").header("host", "a").header("host", "a")),
        Some((400, "duplicate `Host` header"))
    );
    assert_eq!(
        rejection(Request::get("/").header("host", "a").header("authorization", "a").header("authorization", "b")),
        Some((400, "duplicate `Authorization` header"))
    );
    assert_eq!(rejection(Request::get("/").header("host", "a").header("x", "a").header("x", "b")), None);
    assert_eq!(rejection(Request::get("/").header("host", "a b")), Some((400, "invalid `Host` header")));
    assert_eq!(rejection(Request::get("/").header("host", "x@y")), Some((400, "invalid `Host` header")));
    assert_eq!(
        rejection(Request::get("ftp://a/").header("host", "a")),
        Some((400, "the scheme is neither `http` nor `https`"))
    );
    assert_eq!(rejection(Request::connect("a:443")).unwrap().0, 405);
}

#[test]
fn spellings_are_configurable() {
    let rejection = |method: &str, path: &str, policy: &HeadPolicy| {
        let request = Request::builder().method(method).uri(path).header("host", "a");
        check(&head(request), policy).err().map(|rejected| (rejected.status.as_u16(), rejected.detail))
    };
    let default = strict();
    assert_eq!(rejection("POST", "/a%2fb", &default), None);
    assert_eq!(rejection("purge", "/", &default), None);
    for method in ["post", "Post", "gET", "opTions"] {
        assert_eq!(rejection(method, "/", &default), Some((400, "the method is not in upper case")), "{method}");
    }
    let other = HeadPolicy::new(SpellingPolicy::Allow, SpellingPolicy::Deny);
    assert_eq!(rejection("post", "/a%252fb", &other), None);
    for path in ["/a%2fb", "/a%2Fb", "/a%5cb", "/%2F"] {
        assert_eq!(rejection("GET", path, &other), Some((400, "the path contains an escaped slash")), "{path}");
    }
}

#[test]
fn rejects_padded_values_over_http2() {
    let rejection = |version, value: &[u8]| {
        let request = Request::get("http://a/").version(version).header("x-account", value);
        check(&head(request), &strict()).err().map(|rejected| rejected.detail)
    };
    for padded in [&b" alice"[..], b"alice ", b"\talice", b"alice\t", b" "] {
        assert_eq!(
            rejection(Version::HTTP_2, padded),
            Some("a header value starts or ends with whitespace"),
            "{padded:?}"
        );
    }
    assert_eq!(rejection(Version::HTTP_2, b"alice the second"), None);
    assert_eq!(rejection(Version::HTTP_2, b""), None);
}
