//! Validates the head of a request and the transfer coding of its body, and detects upgrades.

use super::list_contains;
use crate::section::{GatewayLimits, GatewaySection};
use diana_http::{find_header, malformed_path, normal_method};
use diana_rules::http_settings::SpellingPolicy;
use diana_rules::matching::is_valid_host;
use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{Method, StatusCode, Version};

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) status: StatusCode,
    pub(crate) detail: &'static str,
}

/// Rejects an invalid request head.
pub(crate) fn check(head: &Parts, gateway: &GatewaySection) -> Result<(), Rejected> {
    let bad_request = |detail| Err(Rejected { status: StatusCode::BAD_REQUEST, detail });
    if head.method == Method::CONNECT {
        return Err(Rejected { status: StatusCode::METHOD_NOT_ALLOWED, detail: "`CONNECT` is not supported" });
    }
    // Some services treat `post` as `POST`, and others do not.
    if gateway.methods.any_case == SpellingPolicy::Deny && normal_method(head.method.as_str()) != head.method.as_str() {
        return bad_request("the method is not in upper case");
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return bad_request("the target `*` is only valid with `OPTIONS`");
    }
    if let Some(problem) = malformed_path(head.uri.path(), gateway.http.escaped_slash) {
        return bad_request(problem);
    }
    // RFC 9113 §8.2.1. HTTP/1 ignores such whitespace, and its parser has removed it already.
    if head.version == Version::HTTP_2 && is_padded(&head.headers) {
        return bad_request("a header value starts or ends with whitespace");
    }
    if head.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return bad_request("the scheme is neither `http` nor `https`");
    }
    let host = find_header(&head.headers, &HOST);
    // Only if some header is repeated, it may be one of these.
    if head.headers.len() > head.headers.keys_len() {
        let is_repeated = |name| head.headers.get_all(name).iter().nth(1).is_some();
        if is_repeated(HOST) {
            return bad_request("duplicate `Host` header");
        }
        // The rules could use one, and the service the other.
        if is_repeated(AUTHORIZATION) {
            return bad_request("duplicate `Authorization` header");
        }
    }
    match (host, head.uri.authority()) {
        (_, Some(authority)) if authority.as_str().contains('@') => {
            bad_request("the request target contains user information")
        }
        (Some(host), _) if !is_valid_host(host.as_bytes()) => bad_request("invalid `Host` header"),
        (_, Some(authority)) if !is_valid_host(authority.as_str().as_bytes()) => {
            bad_request("invalid host in the request target")
        }
        // Only HTTP/1.0 allows requests without a host.
        (None, None) if head.version > Version::HTTP_10 => bad_request("missing `Host` header"),
        _ => Ok(()),
    }
}

/// Rejects a request with too many headers or too long a body.
pub(crate) fn check_bounds(bounds: &GatewayLimits, head: &Parts) -> Result<(), Rejected> {
    // Over HTTP/1, the parser enforces this limit.
    if head.headers.len() > bounds.headers {
        return Err(Rejected { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail: "too many headers" });
    }
    let Some(max) = bounds.body else { return Ok(()) };
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > max) {
        return Err(Rejected { status: StatusCode::PAYLOAD_TOO_LARGE, detail: "the body is too long" });
    }
    Ok(())
}

/// Rejects transfer codings other than `chunked` (RFC 9112, sections 6.1 and 7).
///
/// `Transfer-Encoding` is hop-by-hop, so it is not forwarded. The gateway removes `chunked` while it reads the body. It
/// can't remove `gzip`, and without the field the upstream would take compressed bytes for the content. If
/// the last coding is not `chunked`, the end of the body is unknown, and the HTTP/1 parser has rejected it already.
pub(crate) fn check_coding(headers: &HeaderMap) -> Result<(), Rejected> {
    if find_header(headers, &TRANSFER_ENCODING).is_none() {
        return Ok(());
    }
    let values = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    let mut chunked = 0;
    for coding in values.flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked += 1;
        } else if !coding.is_empty() {
            let detail = "unsupported transfer coding, expected `chunked`";
            return Err(Rejected { status: StatusCode::NOT_IMPLEMENTED, detail });
        }
    }
    if chunked > 1 {
        return Err(Rejected { status: StatusCode::BAD_REQUEST, detail: "duplicate transfer coding `chunked`" });
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
    let protocols = head.headers.get(UPGRADE)?;
    // Upgrading HTTP/1 to another HTTP version or to TLS would let all later requests bypass the rules.
    let is_http = |protocol: &str| {
        let protocol = protocol.trim().to_ascii_lowercase();
        protocol.starts_with("h2")
            || protocol.starts_with("h3")
            || protocol.starts_with("http")
            || protocol.starts_with("tls")
    };
    let bypasses_rules = protocols.to_str().map_or(true, |list| list.split(',').any(is_http));
    let is_single = head.headers.get_all(UPGRADE).iter().nth(1).is_none();
    (!bypasses_rules && is_single && list_contains(&head.headers, CONNECTION, "upgrade")).then(|| protocols.clone())
}
