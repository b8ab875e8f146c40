//! Parses the head of an upstream's response (RFC 9112, sections 4 to 6).

use super::super::WireError;
use bytes::{Buf, Bytes, BytesMut};
use diana_http::head::{self, ConnectionHeaders};
use diana_net::http1_codec::body_decoder::{BodyDecoder, content_length};
use diana_net::http1_codec::chunked::ChunkedDecoder;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Response, StatusCode, Version};
use std::mem::MaybeUninit;

/// The maximum length of a head, and the maximum number of its fields.
const MAX_HEAD: usize = 64 << 10;
const MAX_FIELDS: usize = 128;
/// The maximum number of interim responses of an upstream.
pub(in crate::upstream) const MAX_INTERIM: usize = 16;

/// The head of a response.
pub(in crate::upstream) struct ResponseHead {
    /// The head without hop-by-hop headers, except `Upgrade` in a 101 response.
    pub(in crate::upstream) response: Response<()>,
    pub(in crate::upstream) decoder: BodyDecoder,
    /// Whether the upstream closes the connection after this response, or the end of the response is ambiguous.
    pub(super) is_last: bool,
}

/// Parses and removes the head of a response from the input, if it is complete.
pub(in crate::upstream) fn read(input: &mut BytesMut, method: &Method) -> Result<Option<ResponseHead>, WireError> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, input, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(WireError::InvalidHttp("response head too long"));
        }
        Err(_) => return Err(WireError::InvalidHttp("invalid response head")),
    };
    let (Some(version), Some(code)) = (parsed.version, parsed.code) else { return Ok(None) };
    let status = StatusCode::from_u16(code).map_err(|_| WireError::InvalidHttp("invalid status"))?;
    // The fields are slices of this copy, so that the input buffer can be reused.
    let head = Bytes::copy_from_slice(&input[..length]);
    let start = input.as_ptr().addr();
    let connection = parsed.headers.iter().position(|field| is_connection(field.name));
    let forwarded = parsed.headers.len() - usize::from(connection.is_some());
    let mut builder = HeadBuilder::new(status, version, method, forwarded);
    for (index, field) in parsed.headers.iter().enumerate() {
        // The common values: only `keep-alive` or only `close`.
        if Some(index) == connection
            && let Some(keep_alive) = keep_alive(field.value)
        {
            builder.set_keep_alive(keep_alive);
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| WireError::InvalidHttp("invalid header name"))?;
        let from = if field.value.is_empty() { 0 } else { field.value.as_ptr().addr() - start };
        let value = HeaderValue::from_maybe_shared(head.slice(from..from + field.value.len()));
        builder.field(name, value.map_err(|_| WireError::InvalidHttp("invalid header value"))?)?;
    }
    input.advance(length);
    builder.finish().map(Some)
}

/// A head whose fields are being processed.
struct HeadBuilder {
    response: Response<()>,
    has_no_body: bool,
    is_http10: bool,
    named: ConnectionHeaders,
    length: Option<u64>,
    is_chunked: bool,
    keep_alive: Option<bool>,
}

impl HeadBuilder {
    fn new(status: StatusCode, version: u8, method: &Method, fields: usize) -> Self {
        let is_bodiless =
            status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_11;
        // Leaves room for the rate limit headers.
        response.headers_mut().reserve(fields + 2);
        Self {
            response,
            has_no_body: is_bodiless || *method == Method::HEAD,
            is_http10: version == 0,
            named: ConnectionHeaders::new(),
            length: None,
            is_chunked: false,
            keep_alive: None,
        }
    }

    fn field(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), WireError> {
        if name == CONTENT_LENGTH {
            let length = content_length(&value).ok_or(WireError::InvalidHttp("invalid `Content-Length`"))?;
            match self.length.replace(length) {
                None => {
                    self.response.headers_mut().insert(name, value);
                }
                Some(before) if before == length => {}
                Some(_) => return Err(WireError::InvalidHttp("conflicting `Content-Length` headers")),
            }
        } else if name == TRANSFER_ENCODING {
            // The gateway can't decode any other coding.
            if self.is_chunked || self.is_http10 || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(WireError::InvalidHttp("unsupported `Transfer-Encoding`, expected `chunked`"));
            }
            self.is_chunked = true;
        } else if name == CONNECTION {
            let words = value.to_str().unwrap_or_default().split(',').map(str::trim);
            words.filter_map(|word| keep_alive(word.as_bytes())).for_each(|keep_alive| self.set_keep_alive(keep_alive));
            head::add_connection_headers(&value, &mut self.named);
        } else if name == UPGRADE {
            if self.response.status() == StatusCode::SWITCHING_PROTOCOLS {
                self.response.headers_mut().insert(name, value);
            }
        } else if !head::is_hop_by_hop(&name) {
            self.response.headers_mut().append(name, value);
        }
        Ok(())
    }

    /// Records whether the upstream keeps the connection open. `close` takes precedence over `keep-alive`.
    fn set_keep_alive(&mut self, keep_alive: bool) {
        self.keep_alive = Some(keep_alive && self.keep_alive != Some(false));
    }

    fn finish(mut self) -> Result<ResponseHead, WireError> {
        let headers = self.response.headers_mut();
        for name in &self.named {
            headers.remove(name);
        }
        let mut is_last = !self.keep_alive.unwrap_or(!self.is_http10);
        if self.is_chunked && self.length.is_some() {
            // An intermediary may have used the length instead.
            headers.remove(CONTENT_LENGTH);
            is_last = true;
        }
        if self.response.status() == StatusCode::NO_CONTENT && self.length.is_some_and(|length| length > 0) {
            // A 204 response has no body, but an upstream that states a length may send one.
            is_last = true;
        }
        let decoder = match self.length {
            _ if self.has_no_body => BodyDecoder::Nothing,
            _ if self.is_chunked => BodyDecoder::Chunked(ChunkedDecoder::default()),
            Some(0) => BodyDecoder::Nothing,
            Some(length) => BodyDecoder::Length(length),
            None => {
                is_last = true;
                BodyDecoder::UntilClosed
            }
        };
        Ok(ResponseHead { response: self.response, decoder, is_last })
    }
}

#[inline]
fn is_connection(name: &str) -> bool {
    const NAME: &str = "connection";
    // Most names have another length.
    name.len() == NAME.len() && name.eq_ignore_ascii_case(NAME)
}

/// Returns whether a word of `Connection` keeps the connection open.
fn keep_alive(word: &[u8]) -> Option<bool> {
    match word {
        b"keep-alive" => Some(true),
        b"close" => Some(false),
        _ if word.eq_ignore_ascii_case(b"keep-alive") => Some(true),
        _ if word.eq_ignore_ascii_case(b"close") => Some(false),
        _ => None,
    }
}
