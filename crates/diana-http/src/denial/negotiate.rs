//! In which form a client wants to be refused.

use crate::attributes::HttpAttributes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Method};

/// How a client wants to be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseFormat {
    pub(crate) form: Form,
    pub(crate) has_body: bool,
}

/// In which form a refusal comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A problem (RFC 9457).
    Json,
    /// A page for people.
    Html,
    /// The status of a call, with this content type.
    Grpc(&'static str),
}

impl ResponseFormat {
    pub(crate) fn of(request: &HttpAttributes<'_>) -> Self {
        Self { form: Form::of(request), has_body: request.method != Method::HEAD }
    }
}

impl Form {
    fn of(request: &HttpAttributes<'_>) -> Self {
        let headers = request.headers;
        if let Some(grpc) = headers.get(CONTENT_TYPE).and_then(|value| grpc(value.as_bytes())) {
            return Self::Grpc(grpc);
        }
        match headers.get(ACCEPT) {
            // What most programs say is no list to read.
            Some(accept) if accept != "*/*" && prefers_html(accept) => Self::Html,
            _ => Self::Json,
        }
    }
}

/// The content type that answers a call by gRPC.
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

/// Whether a page is asked for, and no less than JSON: browsers name it, programs mostly do not.
fn prefers_html(accept: &HeaderValue) -> bool {
    let Ok(accept) = accept.to_str() else { return false };
    let (mut html, mut json) = (0, 0);
    for range in accept.split(',') {
        let (kind, parameters) = range.split_once(';').unwrap_or((range, ""));
        let kind = kind.trim();
        if kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml") {
            html = html.max(quality(parameters));
        } else if kind.eq_ignore_ascii_case("application/json") || kind.eq_ignore_ascii_case("application/problem+json")
        {
            json = json.max(quality(parameters));
        }
    }
    html > 0 && html >= json
}

/// The `q` of a media range in thousandths.
fn quality(parameters: &str) -> u32 {
    let mut pairs = parameters.split(';').filter_map(|pair| pair.trim().split_once('='));
    let Some((_, value)) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("q")) else { return 1_000 };
    let (whole, part) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    let part = part.bytes().take(3).enumerate().map(|(nth, digit)| {
        let digit = if digit.is_ascii_digit() { u32::from(digit - b'0') } else { 0 };
        digit * [100, 10, 1].get(nth).copied().unwrap_or(0)
    });
    if whole == "1" { 1_000 } else { part.sum() }
}
