//! Error responses as `application/problem+json` (RFC 9457), for the filter, the layers, the gateway and the admin
//! server. Denials have the types that the IETF's draft registers.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use std::fmt::Write;

/// The content type of the body.
pub(crate) const TYPE: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Returns an error response with a problem body.
///
/// ```
/// use diana_http::problem_response;
/// use http::StatusCode;
///
/// let response = problem_response(StatusCode::NOT_FOUND, "no route matches the request");
/// assert_eq!(response.status(), StatusCode::NOT_FOUND);
/// assert_eq!(response.headers()["content-type"], "application/problem+json");
/// ```
pub fn problem_response(status: StatusCode, detail: &str) -> Response<Full<Bytes>> {
    response(status, body(status, &[], Some(detail)))
}

/// Returns a response with this body.
pub(crate) fn response(status: StatusCode, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, TYPE);
    response
}

/// Formats the body, with the violated policies or another detail.
pub(crate) fn body(status: StatusCode, violated: &[&str], detail: Option<&str>) -> Bytes {
    let mut text = String::with_capacity(256);
    text.push_str("{\"type\":\"");
    let title = match (violated, status) {
        ([], _) => {
            text.push_str("about:blank");
            status.canonical_reason().unwrap_or("Error")
        }
        (_, StatusCode::SERVICE_UNAVAILABLE) => {
            text.push_str("https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
            "Request cannot be satisfied due to temporary server capacity constraints"
        }
        _ => {
            text.push_str("https://iana.org/assignments/http-problem-types#quota-exceeded");
            "Request cannot be satisfied as assigned quota has been exceeded"
        }
    };
    let _ = write!(text, "\",\"title\":\"{title}\",\"status\":{}", status.as_u16());
    if let Some(detail) = detail {
        text.push_str(",\"detail\":");
        write_string(&mut text, detail);
    }
    if !violated.is_empty() {
        text.push_str(",\"violated-policies\":[");
        for (index, name) in violated.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            write_string(&mut text, name);
        }
        text.push(']');
    }
    text.push_str("}\n");
    Bytes::from(text)
}

/// Writes a JSON string.
fn write_string(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' | '\\' => text.extend(['\\', character]),
            character if character < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(character));
            }
            character => text.push(character),
        }
    }
    text.push('"');
}
