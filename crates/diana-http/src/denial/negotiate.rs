//! Content negotiation for denials.

use crate::attributes::HttpAttributes;
use crate::find_header::find_header;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};

/// The response format that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseFormat {
    pub(crate) body_format: BodyFormat,
    pub(crate) has_body: bool,
}

/// The body of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyFormat {
    /// Problem details (RFC 9457).
    Json,
    /// An HTML page.
    Html,
    /// A gRPC status, with this content type.
    Grpc(&'static str),
}

impl ResponseFormat {
    pub(crate) fn of(request: &HttpAttributes<'_>) -> Self {
        Self { body_format: BodyFormat::of(request), has_body: request.method != Method::HEAD }
    }
}

impl BodyFormat {
    fn of(request: &HttpAttributes<'_>) -> Self {
        let headers = request.headers;
        if let Some(grpc) = find_header(headers, &CONTENT_TYPE).and_then(|value| grpc(value.as_bytes())) {
            return Self::Grpc(grpc);
        }
        match find_header(headers, &ACCEPT) {
            // `*/*` is the most common value, and needs no parsing.
            Some(accept) if accept != "*/*" && prefers_html(accept) => Self::Html,
            _ => Self::Json,
        }
    }
}

/// Returns the content type of the response to a gRPC call.
fn grpc(content_type: &[u8]) -> Option<&'static str> {
    let rest = content_type.strip_prefix(b"application/grpc")?;
    if rest.starts_with(b"-web-text") {
        Some("application/grpc-web-text")
    } else if rest.starts_with(b"-web") {
        Some("application/grpc-web")
    } else {
        Some("application/grpc")
    }
}

/// Returns `true` if HTML is accepted, and preferred no less than JSON: browsers list it, most programs do not.
fn prefers_html(accept: &HeaderValue) -> bool {
    let Ok(accept) = accept.to_str() else { return false };
    let (mut html, mut json) = (0, 0);
    for range in accept.split(',') {
        let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
        let media_type = media_type.trim();
        if media_type.eq_ignore_ascii_case("text/html") || media_type.eq_ignore_ascii_case("application/xhtml+xml") {
            html = html.max(quality(parameters));
        } else if media_type.eq_ignore_ascii_case("application/json")
            || media_type.eq_ignore_ascii_case("application/problem+json")
        {
            json = json.max(quality(parameters));
        }
    }
    html > 0 && html >= json
}

/// Returns the `q` of a media range in thousandths.
fn quality(parameters: &str) -> u32 {
    let mut pairs = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
    let Some((_, value)) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("q")) else { return 1_000 };
    let (whole, fraction) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let thousandths = fraction.bytes().take(3).enumerate().map(|(index, digit)| {
        let digit = if digit.is_ascii_digit() { u32::from(digit - b'0') } else { 0 };
        digit * [100, 10, 1].get(index).copied().unwrap_or(0)
    });
    if whole == "1" { 1_000 } else { thousandths.sum() }
}
