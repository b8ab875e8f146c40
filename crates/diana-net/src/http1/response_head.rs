//! Writes the head of a response to a client (RFC 9112, section 6), and decides how its body is framed.

use crate::coarse_timer::Deadlines;
use crate::date_header::with_date;
use crate::http1_codec::body_decoder::content_length;
use crate::http1_codec::body_writer::{Framing, write_field, write_length};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderValue, TRAILER, TRANSFER_ENCODING};
use http::response::Parts;
use http::{Method, StatusCode, Version};
use http_body::Body;

/// The properties of a request that its response depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestInfo {
    pub(super) is_head: bool,
    pub(super) is_http10: bool,
    pub(super) accepts_trailers: bool,
    /// Whether the connection continues after the response.
    pub(super) keep_alive: bool,
}

/// The framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseFraming {
    /// `None` without a body.
    pub(super) body: Option<Framing>,
    /// Whether the connection continues after the response.
    pub(super) keep_alive: bool,
}

impl RequestInfo {
    pub(super) fn new(head: &http::request::Parts, keep_alive: bool, accepts_trailers: bool) -> Self {
        Self {
            is_head: head.method == Method::HEAD,
            is_http10: head.version == Version::HTTP_10,
            accepts_trailers,
            keep_alive,
        }
    }

    /// Returns the version of the response.
    pub(super) fn version(&self) -> &'static [u8] {
        if self.is_http10 { b"HTTP/1.0" } else { b"HTTP/1.1" }
    }
}

/// Writes the head of a response with this body.
pub(super) fn write<B: Body>(
    text: &mut Vec<u8>,
    head: &Parts,
    body: &B,
    request: &RequestInfo,
    clock: &Deadlines,
) -> ResponseFraming {
    let is_upgrade = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let has_no_length =
        head.status.is_informational() || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let has_no_body = has_no_length || request.is_head || body.is_end_stream();
    write_status_line(text, head.status, request);
    let (mut length, mut has_date, mut keep_alive) = (None, false, request.keep_alive && !is_upgrade);
    for (name, value) in &head.headers {
        if *name == CONTENT_LENGTH {
            length = Some(value);
        } else if *name == CONNECTION {
            if is_upgrade {
                write_field(text, name.as_str(), value.as_bytes());
            } else if value.as_bytes().eq_ignore_ascii_case(b"close") {
                keep_alive = false;
            }
        } else if *name == TRANSFER_ENCODING || (*name == TRAILER && (request.is_http10 || has_no_body)) {
            // The framing is decided below, and a message without chunks has no trailers.
        } else {
            has_date |= *name == DATE;
            write_field(text, name.as_str(), value.as_bytes());
        }
    }
    let body = if has_no_body {
        write_length_without_body(text, length, has_no_length, request);
        None
    } else {
        let framing = framing(body, length, request);
        match framing {
            Framing::Length(length) => write_length(text, length),
            Framing::Chunked => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            Framing::UntilClosed => keep_alive = false,
        }
        Some(framing)
    };
    if !is_upgrade {
        write_connection(text, request, keep_alive);
    }
    if has_date {
        text.extend_from_slice(b"\r\n");
    } else {
        write_date(text, clock);
    }
    ResponseFraming { body, keep_alive }
}

/// Writes `Connection`, where the version of the request does not imply it.
pub(super) fn write_connection(text: &mut Vec<u8>, request: &RequestInfo, keep_alive: bool) {
    if !keep_alive {
        text.extend_from_slice(b"connection: close\r\n");
    } else if request.is_http10 {
        text.extend_from_slice(b"connection: keep-alive\r\n");
    }
}

/// Writes `Date` and the end of the head.
pub(super) fn write_date(text: &mut Vec<u8>, clock: &Deadlines) {
    with_date(clock, |date| {
        for part in [b"date: ", date.as_bytes(), b"\r\n\r\n"] {
            text.extend_from_slice(part);
        }
    });
}

fn write_status_line(text: &mut Vec<u8>, status: StatusCode, request: &RequestInfo) {
    text.extend_from_slice(request.version());
    text.extend_from_slice(b" ");
    text.extend_from_slice(status.as_str().as_bytes());
    text.extend_from_slice(b" ");
    text.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    text.extend_from_slice(b"\r\n");
}

/// Writes the length of a response without a body. That to `HEAD` has the length that the body would have.
fn write_length_without_body(
    text: &mut Vec<u8>,
    length: Option<&HeaderValue>,
    has_no_length: bool,
    request: &RequestInfo,
) {
    match length {
        _ if has_no_length => {}
        Some(length) if request.is_head => write_field(text, CONTENT_LENGTH.as_str(), length.as_bytes()),
        _ if request.is_head => {}
        _ => text.extend_from_slice(b"content-length: 0\r\n"),
    }
}

/// Returns the framing of a body: by its length if it is known, which HTTP/2 upstreams may state only in the header.
fn framing<B: Body>(body: &B, length: Option<&HeaderValue>, request: &RequestInfo) -> Framing {
    let known = body.size_hint().exact().or_else(|| length.and_then(content_length));
    match known {
        Some(length) => Framing::Length(length),
        None if request.is_http10 => Framing::UntilClosed,
        None => Framing::Chunked,
    }
}

/// Writes the response to a request whose head can't be parsed. The connection is closed after it.
pub(super) fn write_rejection(text: &mut Vec<u8>, status: StatusCode, clock: &Deadlines) {
    let request = RequestInfo { is_head: false, is_http10: false, accepts_trailers: false, keep_alive: false };
    write_status_line(text, status, &request);
    text.extend_from_slice(b"connection: close\r\ncontent-length: 0\r\n");
    write_date(text, clock);
}
