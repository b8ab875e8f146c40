//! Validates the head of a request and the transfer coding of its body, and detects upgrades.

use super::names;
use crate::section::GatewaySection;
use diana_http::{malformed_path, normal_method};
use diana_rules::http_settings::Spelling;
use diana_rules::matching::is_valid_host;
use http::header::{AUTHORIZATION, CONNECTION, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, StatusCode, Version};

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) status: StatusCode,
    pub(crate) why: &'static str,
}

/// Rejects an invalid request head.
pub(crate) fn check(head: &Parts, gateway: &GatewaySection) -> Result<(), Rejected> {
    let bad = |why| Err(Rejected { status: StatusCode::BAD_REQUEST, why });
    if head.method == Method::CONNECT {
        return Err(Rejected { status: StatusCode::METHOD_NOT_ALLOWED, why: "this is no proxy to other places" });
    }
    // Some services treat `post` as `POST`, and others do not.
    if gateway.methods.any_case == Spelling::Deny && normal_method(head.method.as_str()) != head.method.as_str() {
        return bad("the method is not written in capitals");
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return bad("only OPTIONS can ask for `*`");
    }
    if let Some(problem) = malformed_path(head.uri.path(), gateway.http.escaped_slash) {
        return bad(problem);
    }
    // RFC 9113 §8.2.1. HTTP/1 ignores such whitespace, and hyper has removed it already.
    if head.version == Version::HTTP_2 && is_padded(&head.headers) {
        return bad("a header value begins or ends with whitespace");
    }
    if head.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return bad("the address is neither http nor https");
    }
    let host = head.headers.get(HOST);
    // Only if some header is repeated, it may be one of these.
    if head.headers.len() > head.headers.keys_len() {
        let is_twice = |name| head.headers.get_all(name).iter().nth(1).is_some();
        if is_twice(HOST) {
            return bad("there is more than one Host");
        }
        // The rules could use one, and the service the other.
        if is_twice(AUTHORIZATION) {
            return bad("there is more than one Authorization");
        }
    }
    match (host, head.uri.authority()) {
        (_, Some(authority)) if authority.as_str().contains('@') => bad("the address has a user in it"),
        (Some(host), _) if !is_valid_host(host.as_bytes()) => bad("the Host is invalid"),
        (_, Some(authority)) if !is_valid_host(authority.as_str().as_bytes()) => bad("the host is invalid"),
        // Only HTTP/1.0 allows requests without a host.
        (None, None) if head.version > Version::HTTP_10 => bad("there is no Host"),
        _ => Ok(()),
    }
}

/// Rejects transfer codings other than `chunked` (RFC 9112, sections 6.1 and 7).
///
/// `Transfer-Encoding` is hop-by-hop, so it is not forwarded. The gateway removes `chunked` while it reads the body. It
/// can't remove `gzip`, and without the field the upstream would take compressed bytes for the content. hyper responds
/// with 400 itself if the last coding is not `chunked`, since then the end of the body is unknown.
pub(crate) fn check_coding(headers: &HeaderMap) -> Result<(), Rejected> {
    // Comparing the names costs less than a lookup, and the field is usually missing.
    if !headers.keys().any(|name| *name == TRANSFER_ENCODING) {
        return Ok(());
    }
    let values = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let mut chunked = 0;
    for coding in values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked += 1;
        } else if !coding.is_empty() {
            let why = "no transfer coding other than `chunked` is supported";
            return Err(Rejected { status: StatusCode::NOT_IMPLEMENTED, why });
        }
    }
    if chunked > 1 {
        return Err(Rejected { status: StatusCode::BAD_REQUEST, why: "`chunked` is applied more than once" });
    }
    Ok(())
}

/// Returns `true` if a value starts or ends with whitespace.
fn is_padded(fields: &HeaderMap) -> bool {
    fields.values().any(|value| value.as_bytes().trim_ascii().len() < value.len())
}

/// Returns the protocol that a client wants to upgrade to.
pub(crate) fn upgrade(head: &Parts) -> Option<HeaderValue> {
    if head.version != Version::HTTP_11 {
        return None;
    }
    let asks = head.headers.get(UPGRADE)?;
    // Upgrading HTTP/1 to another HTTP version or to TLS would let all later requests bypass the rules.
    let is_http = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        word.starts_with("h2") || word.starts_with("h3") || word.starts_with("http") || word.starts_with("tls")
    };
    let leads_past = asks.to_str().map_or(true, |words| words.split(',').any(is_http));
    let is_alone = head.headers.get_all(UPGRADE).iter().nth(1).is_none();
    (!leads_past && is_alone && names(&head.headers, CONNECTION, "upgrade")).then(|| asks.clone())
}
