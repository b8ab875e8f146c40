//! A body in chunks, each with its length before it, and perhaps fields behind the last (RFC 9112, section 7.1).

use super::super::WireError;
use super::decode::take;
use crate::gateway::head::may_trail;
use bytes::{Buf, Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

/// How long the line before a chunk may be, and all the fields behind the last.
const LONGEST_LINE: usize = 4 << 10;
const LONGEST_TRAILERS: usize = 16 << 10;
const MOST_TRAILERS: usize = 64;

/// A body in chunks that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChunkedDecoder {
    /// A length comes next.
    #[default]
    Length,
    /// So many bytes of a chunk come next.
    Data(u64),
    /// The end of a line comes next, behind a chunk.
    LineEnd,
    Trailers,
    OverLimit,
}

impl ChunkedDecoder {
    pub(super) fn is_over(self) -> bool {
        self == Self::OverLimit
    }

    /// How many bytes are worth reading at once. Mostly another chunk comes behind this one.
    pub(super) fn expects(self) -> usize {
        match self {
            Self::Data(left) => usize::try_from(left).unwrap_or(usize::MAX).saturating_add(LONGEST_LINE),
            _ => 0,
        }
    }

    /// The next piece, if there is one in what has come.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, WireError> {
        loop {
            match *self {
                // httparse takes a line without any digit for a zero, which would be the end.
                Self::Length if input.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) => {
                    return Err(WireError::NoHttp("a chunk has no length"));
                }
                Self::Length => match httparse::parse_chunk_size(input) {
                    Ok(httparse::Status::Complete((length, size))) => {
                        input.advance(length);
                        *self = if size == 0 { Self::Trailers } else { Self::Data(size) };
                    }
                    Ok(httparse::Status::Partial) if input.len() < LONGEST_LINE => return Ok(None),
                    _ => return Err(WireError::NoHttp("a chunk has no length")),
                },
                Self::Data(_) if input.is_empty() => return Ok(None),
                Self::Data(left) => {
                    let come = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - come as u64;
                    *self = if left == 0 { Self::LineEnd } else { Self::Data(left) };
                    return Ok(Some(Frame::data(take(input, come))));
                }
                Self::LineEnd if input.len() < 2 => return Ok(None),
                Self::LineEnd => {
                    if !input.starts_with(b"\r\n") {
                        return Err(WireError::NoHttp("a chunk is longer than it says"));
                    }
                    input.advance(2);
                    *self = Self::Length;
                }
                Self::Trailers => {
                    let Some(trailers) = trailers(input)? else { return Ok(None) };
                    *self = Self::OverLimit;
                    return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                }
                Self::OverLimit => return Ok(None),
            }
        }
    }
}

/// The fields behind a body, if they are whole.
fn trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, WireError> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_TRAILERS];
    let (length, fields) = match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) if input.len() < LONGEST_TRAILERS => return Ok(None),
        _ => return Err(WireError::NoHttp("what stands behind its body is no HTTP")),
    };
    let mut trailers = HeaderMap::new();
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(field.value))
            && may_trail(&name)
        {
            trailers.append(name, value);
        }
    }
    input.advance(length);
    Ok(Some(trailers))
}
