//! Decodes a chunked body with optional trailers (RFC 9112, section 7.1).

use super::super::WireError;
use super::decode::take;
use crate::request::head::is_trailer_allowed;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

/// The maximum length of a chunk's size line, and of all trailers.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS_LENGTH: usize = 16 << 10;
const MAX_TRAILERS: usize = 64;

/// The state of a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChunkedDecoder {
    /// A chunk size comes next.
    #[default]
    Length,
    /// This many bytes of a chunk come next.
    Data(u64),
    /// The line end after a chunk comes next.
    LineEnd,
    Trailers,
    Done,
}

impl ChunkedDecoder {
    pub(super) fn is_over(self) -> bool {
        self == Self::Done
    }

    /// Returns how many bytes are worth reading at once. Usually another chunk follows this one.
    pub(super) fn expects(self) -> usize {
        match self {
            Self::Data(remaining) => usize::try_from(remaining).unwrap_or(usize::MAX).saturating_add(MAX_LINE),
            _ => 0,
        }
    }

    /// Returns the next frame, if the input has one.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, WireError> {
        loop {
            match *self {
                // httparse parses a line without a digit as zero, which would be the end.
                Self::Length if input.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => {
                    return Err(WireError::InvalidHttp("missing chunk size"));
                }
                Self::Length => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        input.advance(length);
                        *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if input.len() < MAX_LINE => return Ok(None),
                    _ => return Err(WireError::InvalidHttp("missing chunk size")),
                },
                Self::Data(_) if input.is_empty() => return Ok(None),
                Self::Data(remaining) => {
                    let length = input.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
                    let remaining = remaining - length as u64;
                    *self = if remaining == 0 { Self::LineEnd } else { Self::Data(remaining) };
                    return Ok(Some(Frame::data(take(input, length))));
                }
                Self::LineEnd if input.len() < 2 => return Ok(None),
                Self::LineEnd => {
                    if !input.starts_with(b"\r\n") {
                        return Err(WireError::InvalidHttp("chunk longer than its size"));
                    }
                    input.advance(2);
                    *self = Self::Length;
                }
                Self::Trailers => {
                    let Some(trailers) = trailers(input)? else { return Ok(None) };
                    *self = Self::Done;
                    return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                }
                Self::Done => return Ok(None),
            }
        }
    }
}

/// Parses the trailers, if they are complete.
fn trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, WireError> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let (length, fields) = match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) if input.len() < MAX_TRAILERS_LENGTH => return Ok(None),
        _ => return Err(WireError::InvalidHttp("invalid trailers")),
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value))
            && is_trailer_allowed(&name)
        {
            trailers.append(name, value);
        }
    }
    input.advance(length);
    Ok(Some(trailers))
}
