//! Responses that the gateway creates itself: errors, and the echo of the built-in upstream.

use crate::upstream::UpstreamError;
use bytes::Bytes;
use diana_http::problem_response as problem;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use std::net::IpAddr;

/// Returns the response to a request whose upstream did not respond. The cause is only logged: clients must not see it.
pub(crate) fn upstream_error(error: &UpstreamError) -> Response<Full<Bytes>> {
    match error {
        UpstreamError::TimedOut => problem(StatusCode::GATEWAY_TIMEOUT, "the upstream did not respond in time"),
        UpstreamError::NoUpstream => problem(StatusCode::NOT_FOUND, "no upstream is configured for the request"),
        UpstreamError::Busy => problem(StatusCode::SERVICE_UNAVAILABLE, "all connections to the upstream are in use"),
        UpstreamError::ByClient => problem(StatusCode::BAD_REQUEST, "the body is invalid"),
        UpstreamError::Unreachable(_) | UpstreamError::Broken(_) => {
            problem(StatusCode::BAD_GATEWAY, "the upstream cannot be reached")
        }
    }
}

/// Returns the built-in upstream's response: the request as it was received.
pub(crate) fn echo(head: &Parts, client: IpAddr) -> Response<Full<Bytes>> {
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), serde_json::Value::from(String::from_utf8_lossy(value.as_bytes())))
    });
    let echo = json!({
        "served_by": "diana's built-in upstream",
        "client": client.to_string(),
        "method": head.method.as_str(),
        "path": head.uri.path(),
        "query": head.uri.query(),
        "headers": headers.collect::<serde_json::Map<_, _>>(),
    });
    let mut response = Response::new(Full::from(format!("{echo:#}\n")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the response if there is no upstream: the request is allowed.
pub(crate) fn allowed() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
