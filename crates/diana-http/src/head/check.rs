//! Validates the head of a request, and the transfer coding of its body.

use crate::{find_header, malformed_path, normal_method, problem_response};
use bytes::Bytes;
use diana::rules::http_settings::SpellingPolicy;
use diana::rules::matching::is_valid_host;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version};
use http_body_util::Full;

/// The heads to reject, beyond those that HTTP forbids: settings of the section `gateway` of the rule file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeadPolicy {
    /// Whether methods may be in lower case, such as `post`.
    pub any_case_methods: SpellingPolicy,
    /// Whether paths may have an escaped slash.
    pub escaped_slash: SpellingPolicy,
    /// The maximum number of headers.
    pub max_headers: usize,
    /// The maximum length of a body.
    pub max_body: Option<u64>,
}

impl HeadPolicy {
    /// Creates a policy without bounds.
    pub fn new(any_case_methods: SpellingPolicy, escaped_slash: SpellingPolicy) -> Self {
        Self { any_case_methods, escaped_slash, max_headers: usize::MAX, max_body: None }
    }

    /// Bounds the number of headers and the length of the body.
    #[must_use]
    pub fn bounds(self, max_headers: usize, max_body: Option<u64>) -> Self {
        Self { max_headers, max_body, ..self }
    }
}

/// The response to a request that is rejected before any rule is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("answered with {}: {detail}", .status.as_u16())]
pub struct RejectedRequest {
    /// The status code.
    pub status: StatusCode,
    /// The reason.
    pub detail: &'static str,
}

impl RejectedRequest {
    /// Returns the response.
    pub fn response(&self) -> Response<Full<Bytes>> {
        let mut response = problem_response(self.status, self.detail);
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
            response.headers_mut().insert(ALLOW, methods);
        }
        response
    }
}

/// Checks the head of a request: its method, target and host, and that it is within the bounds.
///
/// # Errors
/// It is invalid, or exceeds the bounds.
pub fn check(head: &Parts, policy: &HeadPolicy) -> Result<(), RejectedRequest> {
    let bad_request = |detail| Err(RejectedRequest { status: StatusCode::BAD_REQUEST, detail });
    if head.method == Method::CONNECT {
        return Err(RejectedRequest { status: StatusCode::METHOD_NOT_ALLOWED, detail: "`CONNECT` is not supported" });
    }
    // Some services treat `post` as `POST`, and others do not.
    if policy.any_case_methods == SpellingPolicy::Deny && normal_method(head.method.as_str()) != head.method.as_str() {
        return bad_request("the method is not in upper case");
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return bad_request("the target `*` is only valid with `OPTIONS`");
    }
    if let Some(problem) = malformed_path(head.uri.path(), policy.escaped_slash) {
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
    // One of these can be repeated only if some header is.
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
        _ => check_bounds(head, policy),
    }
}

/// Rejects a request with too many headers or too long a body.
fn check_bounds(head: &Parts, policy: &HeadPolicy) -> Result<(), RejectedRequest> {
    // Over HTTP/1, the parser enforces this limit.
    if head.headers.len() > policy.max_headers {
        return Err(RejectedRequest {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            detail: "too many headers",
        });
    }
    let Some(max) = policy.max_body else { return Ok(()) };
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > max) {
        return Err(RejectedRequest { status: StatusCode::PAYLOAD_TOO_LARGE, detail: "the body is too long" });
    }
    Ok(())
}

/// Rejects transfer codings other than `chunked` (RFC 9112, sections 6.1 and 7).
///
/// `Transfer-Encoding` is hop-by-hop, so it is not forwarded. The gateway removes `chunked` while it reads the body. It
/// can't remove `gzip`, and without the field the upstream would take compressed bytes for the content. If
/// the last coding is not `chunked`, the end of the body is unknown, and the HTTP/1 parser has rejected it already.
pub fn check_coding(headers: &HeaderMap) -> Result<(), RejectedRequest> {
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
            return Err(RejectedRequest { status: StatusCode::NOT_IMPLEMENTED, detail });
        }
    }
    if chunked > 1 {
        return Err(RejectedRequest { status: StatusCode::BAD_REQUEST, detail: "duplicate transfer coding `chunked`" });
    }
    Ok(())
}

/// Returns `true` if a value starts or ends with whitespace.
fn is_padded(fields: &HeaderMap) -> bool {
    fields.values().any(|value| value.as_bytes().trim_ascii().len() < value.len())
}

#[cfg(test)]
mod tests;
