//! Decodes the body of a request or a response, whose length the head has determined (RFC 9112, section 6).

use super::InvalidHttp;
use super::chunked::ChunkedDecoder;
use bytes::{Buf, Bytes, BytesMut};
use http::HeaderValue;
use http_body::{Frame, SizeHint};

/// Frames of a body up to this size are copied.
const SMALL: usize = 2 << 10;

/// Decodes the rest of a message.
#[derive(Debug)]
pub enum BodyDecoder {
    /// There is no body.
    Nothing,
    /// So many bytes are left.
    Length(u64),
    /// Chunks.
    Chunked(ChunkedDecoder),
    /// All bytes until the peer closes the connection. Only responses can have such a body.
    UntilClosed,
}

impl BodyDecoder {
    /// Returns the next frame, if the input has one.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, InvalidHttp> {
        match self {
            Self::Nothing => Ok(None),
            Self::Chunked(chunks) => chunks.take(input),
            Self::Length(_) | Self::UntilClosed if input.is_empty() => Ok(None),
            Self::Length(remaining) => {
                let length = input.len().min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                *remaining -= length as u64;
                if *remaining == 0 {
                    *self = Self::Nothing;
                }
                Ok(Some(Frame::data(take(input, length))))
            }
            Self::UntilClosed => Ok(Some(Frame::data(take(input, input.len())))),
        }
    }

    /// Returns `true` if the message has ended.
    pub fn is_over(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Chunked(chunks) => chunks.is_over(),
            Self::Length(_) | Self::UntilClosed => false,
        }
    }

    /// Returns `true` if the body ends with the connection.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }

    /// Returns how many bytes are worth reading at once.
    pub fn expects(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Length(remaining) => usize::try_from(*remaining).unwrap_or(usize::MAX),
            Self::Chunked(chunks) => chunks.expects(),
            Self::UntilClosed => usize::MAX,
        }
    }

    /// Returns what is known of the length.
    pub fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Length(remaining) => SizeHint::with_exact(*remaining),
            Self::Chunked(_) | Self::UntilClosed => SizeHint::default(),
        }
    }
}

/// Parses a `Content-Length`: only digits, no sign and no list.
pub fn content_length(value: &HeaderValue) -> Option<u64> {
    let digits = value.as_bytes();
    // A longer number, which may have leading zeros, is left to the standard library.
    if !digits.is_empty() && digits.len() <= 19 {
        return digits
            .iter()
            .try_fold(0_u64, |length, digit| digit.is_ascii_digit().then(|| length * 10 + u64::from(digit - b'0')));
    }
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| value.to_str().ok()?.parse().ok()).flatten()
}

/// Takes a frame from the start of the input.
pub(super) fn take(input: &mut BytesMut, length: usize) -> Bytes {
    if length > SMALL {
        return input.split_to(length).freeze();
    }
    // A small copy costs less than sharing the memory and allocating a new buffer.
    let data = Bytes::copy_from_slice(&input[..length]);
    input.advance(length);
    data
}
