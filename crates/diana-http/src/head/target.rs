//! The target of a request (RFC 9112, section 3.2): a path, a URI, `*`, or for `CONNECT` an authority. Clients of the gateway
//! send it, and other proxies describe it; all of them are parsed here, so that no service accepts what another one rejects.

use bytes::Bytes;
use http::{Method, Uri};

/// Parses the target of a request that another proxy describes; `None` if the gateway would reject it.
pub fn parse_target(text: &[u8], method: &Method) -> Option<Uri> {
    // The parser of HTTP/1 checks the same. `Uri` ignores what follows `#`.
    let has_only_visible = !text.iter().any(|byte| byte.is_ascii_control() || *byte == b' ');
    if !has_only_visible || std::str::from_utf8(text).is_err() {
        return None;
    }
    parse_visible(Bytes::copy_from_slice(text), method)
}

/// Parses a target that is UTF-8 without spaces and control characters.
pub fn parse_visible(text: Bytes, method: &Method) -> Option<Uri> {
    let uri = Uri::from_maybe_shared(text).ok()?;
    // Only `CONNECT` may have an authority without a scheme as its target.
    let is_authority = uri.scheme().is_none() && uri.authority().is_some();
    (!is_authority || *method == Method::CONNECT).then_some(uri)
}

#[cfg(test)]
mod tests {
    use super::parse_target;
    use http::Method;

    #[test]
    fn a_target_has_one_of_the_four_forms() {
        let is_valid = |method: &Method, text: &[u8]| parse_target(text, method).is_some();
        for text in ["/", "/a?b", "/a#b", "/\u{e9}", "*", "http://a/b", "https://a:443"] {
            assert!(is_valid(&Method::GET, text.as_bytes()), "{text}");
        }
        for text in [
            &b""[..],
            b"login",
            b"a:443",
            b"&:",
            b"?a",
            b"a/b",
            b"/a b",
            b"/a\t",
            b"/a\x7f",
            b"/\x80",
            b"/a#\x80",
            b"/a# b",
        ] {
            assert!(!is_valid(&Method::GET, text), "{}", text.escape_ascii());
        }
        assert!(is_valid(&Method::CONNECT, b"a:443"));
        assert!(!is_valid(&Method::CONNECT, b"a:443#\x80"));
    }
}
