//! What a client may ask at all, and what it wants its connection to become.

use super::names;
use diana_http::has_dot_segments;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderValue, UPGRADE};
use http::request::Parts;
use http::uri::Authority;
use http::{Method, StatusCode, Version};

/// A request that goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct Rejected {
    pub(in crate::gateway) status: StatusCode,
    pub(in crate::gateway) why: &'static str,
}

/// Whether a client may ask this at all.
pub(in crate::gateway) fn check(head: &Parts) -> Result<(), Rejected> {
    let bad = |why| Err(Rejected { status: StatusCode::BAD_REQUEST, why });
    if head.method == Method::CONNECT {
        return Err(Rejected { status: StatusCode::METHOD_NOT_ALLOWED, why: "this is no proxy to other places" });
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return bad("only OPTIONS can ask for `*`");
    }
    if has_dot_segments(head.uri.path()) {
        return bad("the path has `.` or `..` in it");
    }
    if head.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return bad("the address is neither http nor https");
    }
    let host = head.headers.get(HOST);
    // Only if some header is there twice it may be one of these.
    if head.headers.len() > head.headers.keys_len() {
        let is_twice = |name| head.headers.get_all(name).iter().nth(1).is_some();
        if is_twice(HOST) {
            return bad("there is more than one Host");
        }
        // The rules would go by one, and the service perhaps by the other.
        if is_twice(AUTHORIZATION) {
            return bad("there is more than one Authorization");
        }
    }
    match (host, head.uri.authority()) {
        (Some(host), _) if !is_host(host) => bad("the Host is no host"),
        (_, Some(authority)) if authority.as_str().contains('@') => bad("the address has a user in it"),
        // Only HTTP/1.0 knows requests without one.
        (None, None) if head.version > Version::HTTP_10 => bad("there is no Host"),
        _ => Ok(()),
    }
}

fn is_host(host: &HeaderValue) -> bool {
    // A name or an address, and perhaps a port: what almost all are needs no second look. An empty one is what a client sends
    // that knows no host.
    let bytes = host.as_bytes();
    let name = bytes.iter().take_while(|byte| IS_PLAIN[usize::from(**byte)]).count();
    let is_plain = match &bytes[name..] {
        [] => true,
        [b':', port @ ..] => (1..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_plain || Authority::try_from(bytes).is_ok_and(|host| !host.as_str().contains('@'))
}

/// Which bytes names and addresses (but for those of IPv6) are made of.
const IS_PLAIN: [bool; 256] = {
    let mut is_plain = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        is_plain[byte as usize] = byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
        byte += 1;
    }
    is_plain
};

/// What a client wants its connection to become.
pub(in crate::gateway) fn upgrade(head: &Parts) -> Option<HeaderValue> {
    if head.version != Version::HTTP_11 {
        return None;
    }
    let asks = head.headers.get(UPGRADE)?;
    // Another HTTP, or TLS, in the middle of HTTP/1 would be a way past the rules for all that follows.
    let is_http = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        word.starts_with("h2") || word.starts_with("h3") || word.starts_with("http") || word.starts_with("tls")
    };
    let leads_past = asks.to_str().map_or(true, |words| words.split(',').any(is_http));
    let is_alone = head.headers.get_all(UPGRADE).iter().nth(1).is_none();
    (!leads_past && is_alone && names(&head.headers, CONNECTION, "upgrade")).then(|| asks.clone())
}
