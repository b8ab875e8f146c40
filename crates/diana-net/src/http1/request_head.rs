//! Parses the head of a client's request (RFC 9112, sections 2 to 6).
//!
//! Only what determines where the request ends, and how its connection continues, is checked in this module;
//! [`check`](diana_http::head::check) checks the rest, for HTTP/2 too.

use crate::ClientBounds;
use crate::http1_codec::body_decoder::{BodyDecoder, content_length};
use crate::http1_codec::chunked::ChunkedDecoder;
use crate::spare_headers;
use bytes::{Buf, Bytes, BytesMut};
use diana_http::head::parse_visible;
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{Method, Request, StatusCode, Version};
use std::mem::MaybeUninit;

/// The maximum length of a request target that [`Uri`](http::Uri) supports.
const MAX_TARGET: usize = u16::MAX as usize - 1;
/// The number of fields that are parsed without allocating.
const FEW_FIELDS: usize = 128;

/// The head of a request.
#[derive(Debug)]
pub(super) struct RequestHead {
    pub(super) parts: Parts,
    pub(super) decoder: BodyDecoder,
    /// Whether the client keeps the connection open after the response.
    pub(super) keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    pub(super) has_upgrade: bool,
    /// Whether the client accepts trailers.
    pub(super) accepts_trailers: bool,
}

/// The reason why a head is rejected, with the status of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeadError {
    #[error("invalid request head")]
    Invalid,
    #[error("request head too long")]
    TooLong,
    #[error("request target too long")]
    TargetTooLong,
}

impl HeadError {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
        }
    }
}

/// Reads heads that may arrive in parts.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    /// The number of bytes of the input parsed without finding the end of a head.
    parsed: usize,
}

impl HeadReader {
    /// Takes a head from the start of the input, if it is complete.
    pub(super) fn take(
        &mut self,
        input: &mut BytesMut,
        bounds: &ClientBounds,
    ) -> Result<Option<RequestHead>, HeadError> {
        // Bytes that arrive one by one are not parsed from the start each time.
        if input.len() > self.parsed
            && (self.parsed == 0 || has_end(&input[self.parsed.saturating_sub(2)..]))
            && let Some((head, length)) = parse(input, bounds.headers)?
        {
            if length > bounds.header {
                return Err(HeadError::TooLong);
            }
            input.advance(length);
            self.parsed = 0;
            return Ok(Some(head));
        }
        self.parsed = input.len();
        if input.len() < bounds.header { Ok(None) } else { Err(HeadError::TooLong) }
    }

    /// Takes a head from the input after `read` has been added to it.
    pub(super) fn add(
        &mut self,
        input: &mut BytesMut,
        read: &[u8],
        bounds: &ClientBounds,
    ) -> Result<Option<RequestHead>, HeadError> {
        // Most heads arrive as a whole: they are parsed where they are.
        if input.is_empty()
            && !read.is_empty()
            && let Some((head, length)) = parse(read, bounds.headers)?
        {
            if length > bounds.header {
                return Err(HeadError::TooLong);
            }
            if length < read.len() {
                input.extend_from_slice(&read[length..]);
            }
            return Ok(Some(head));
        }
        if input.is_empty() {
            self.parsed = read.len();
        }
        input.extend_from_slice(read);
        self.take(input, bounds)
    }
}

/// Returns `true` if the bytes contain an empty line.
fn has_end(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\n\n") || bytes.windows(3).any(|three| three == b"\n\r\n")
}

/// Parses the head at the start of the input, if it is complete. Also returns its length.
fn parse(input: &[u8], max_fields: usize) -> Result<Option<(RequestHead, usize)>, HeadError> {
    if max_fields <= FEW_FIELDS {
        let mut fields = [const { MaybeUninit::uninit() }; FEW_FIELDS];
        return parse_with(input, &mut fields[..max_fields]);
    }
    let mut fields = vec![MaybeUninit::uninit(); max_fields];
    parse_with(input, &mut fields)
}

fn parse_with<'a>(
    input: &'a [u8],
    fields: &mut [MaybeUninit<httparse::Header<'a>>],
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut parsed = httparse::Request::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_request_with_uninit_headers(&mut parsed, input, fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HeadError::TooLong),
        Err(_) => return Err(HeadError::Invalid),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Ok(None);
    };
    if target.len() > MAX_TARGET {
        return Err(HeadError::TargetTooLong);
    }
    // Target and values are slices of this copy, so that the input buffer can be reused.
    let shared = SharedText { text: Bytes::copy_from_slice(&input[..length]), start: input.as_ptr().addr() };
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Invalid)?;
    parts.uri = parse_visible(shared.slice(target.as_bytes()), &parts.method).ok_or(HeadError::Invalid)?;
    parts.version = if version == 0 { Version::HTTP_10 } else { Version::HTTP_11 };
    parts.headers = spare_headers::recycled();
    parts.headers.reserve(parsed.headers.len());
    let mut builder = HeadBuilder::new(parts);
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| HeadError::Invalid)?;
        let value = HeaderValue::from_maybe_shared(shared.slice(field.value)).map_err(|_| HeadError::Invalid)?;
        builder.field(name, value)?;
    }
    Ok(Some((builder.finish()?, length)))
}

/// A copy of the input, to which slices of the input are translated.
struct SharedText {
    text: Bytes,
    start: usize,
}

impl SharedText {
    fn slice(&self, part: &[u8]) -> Bytes {
        if part.is_empty() {
            return Bytes::new();
        }
        let from = part.as_ptr().addr() - self.start;
        self.text.slice(from..from + part.len())
    }
}

/// A head whose fields are being processed.
struct HeadBuilder {
    parts: Parts,
    length: Option<u64>,
    coding: Option<Coding>,
    /// Whether there is a `Content-Length`, valid or not.
    has_length: bool,
    connection: Option<KeepAlive>,
    expects_continue: bool,
    has_upgrade: bool,
    accepts_trailers: bool,
}

/// The last transfer coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Chunked,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepAlive {
    KeepAlive,
    Close,
}

impl HeadBuilder {
    fn new(parts: Parts) -> Self {
        Self {
            parts,
            length: None,
            coding: None,
            has_length: false,
            connection: None,
            expects_continue: false,
            has_upgrade: false,
            accepts_trailers: false,
        }
    }

    fn field(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), HeadError> {
        if name == CONTENT_LENGTH {
            self.has_length = true;
            let length = content_length(&value).ok_or(HeadError::Invalid)?;
            match self.length.replace(length) {
                None => {}
                // The same length twice is taken for one.
                Some(before) if before == length => return Ok(()),
                Some(_) => return Err(HeadError::Invalid),
            }
        } else if name == TRANSFER_ENCODING {
            // HTTP/1.0 has no transfer codings.
            if self.parts.version == Version::HTTP_10 {
                return Err(HeadError::Invalid);
            }
            self.coding = Some(coding(&value));
        } else if name == CONNECTION {
            self.connection(&value);
        } else if name == EXPECT {
            self.expects_continue = value.as_bytes().eq_ignore_ascii_case(b"100-continue");
        } else if name == UPGRADE {
            self.has_upgrade = true;
        } else if name == TE {
            self.accepts_trailers |= words(&value).any(|word| word.eq_ignore_ascii_case(b"trailers"));
        }
        self.parts.headers.append(name, value);
        Ok(())
    }

    /// `close` takes precedence over `keep-alive`, also if it is in another field.
    fn connection(&mut self, value: &HeaderValue) {
        for word in words(value) {
            if word.eq_ignore_ascii_case(b"close") {
                self.connection = Some(KeepAlive::Close);
            } else if self.connection.is_none() && word.eq_ignore_ascii_case(b"keep-alive") {
                self.connection = Some(KeepAlive::KeepAlive);
            }
        }
    }

    fn finish(mut self) -> Result<RequestHead, HeadError> {
        let is_http10 = self.parts.version == Version::HTTP_10;
        let mut keep_alive = match self.connection {
            Some(connection) => connection == KeepAlive::KeepAlive,
            None => !is_http10,
        };
        let decoder = match (self.coding, self.length) {
            (Some(Coding::Chunked), _) => {
                if self.has_length {
                    // Another server may have used the length: nothing that follows on this connection is trusted.
                    self.parts.headers.remove(CONTENT_LENGTH);
                    keep_alive = false;
                }
                BodyDecoder::Chunked(ChunkedDecoder::default())
            }
            // The end of the body is unknown.
            (Some(Coding::Other), _) => return Err(HeadError::Invalid),
            (None, None | Some(0)) => BodyDecoder::Nothing,
            (None, Some(length)) => BodyDecoder::Length(length),
        };
        Ok(RequestHead {
            // A request without a body has nothing to wait for.
            expects_continue: self.expects_continue && !is_http10 && !decoder.is_over(),
            has_upgrade: self.has_upgrade && !is_http10,
            accepts_trailers: self.accepts_trailers,
            parts: self.parts,
            decoder,
            keep_alive,
        })
    }
}

/// Returns the last transfer coding of a value.
fn coding(value: &HeaderValue) -> Coding {
    let last = value.to_str().ok().and_then(|codings| codings.rsplit(',').next());
    let is_chunked = last.is_some_and(|last| last.trim_ascii().eq_ignore_ascii_case("chunked"));
    if is_chunked { Coding::Chunked } else { Coding::Other }
}

/// Returns the items of a comma-separated list.
fn words(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}
