//! Writes a message: its head, and its body with the framing that the head states (RFC 9112, section 6).

use super::InvalidHttp;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Frames up to this size are copied into the text, so that both are written together.
const SMALL: usize = 8 << 10;

/// The bytes to write: the text, then a frame of the body, then the end of its chunk.
#[derive(Debug, Default)]
pub struct WriteBuffer {
    /// Heads, chunk lines and short bodies.
    pub text: Vec<u8>,
    /// The length of the text that has been written.
    written: usize,
    data: Bytes,
    chunk_end: &'static [u8],
}

/// The marking of the end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// The number of bytes that are still to come.
    Length(u64),
    /// Chunks.
    Chunked,
    /// The connection is closed after it. Only responses can have such a body.
    UntilClosed,
}

impl WriteBuffer {
    /// Returns `true` if all bytes have been written.
    pub fn is_empty(&self) -> bool {
        self.written == self.text.len() && self.data.is_empty() && self.chunk_end.is_empty()
    }

    /// Returns `true` if another frame can be added.
    pub fn has_room(&self) -> bool {
        self.data.is_empty() && self.chunk_end.is_empty() && self.text.len() <= SMALL
    }

    /// Frees the memory if it is larger than most heads need.
    pub fn trim(&mut self) {
        if self.text.capacity() > SMALL {
            self.text = Vec::new();
        }
    }

    /// Adds a frame of a body. The buffer must have room.
    pub fn push(&mut self, framing: &mut Framing, data: Bytes) -> Result<(), InvalidHttp> {
        let chunk_end = framing.begin_chunk(&mut self.text, data.len())?;
        if self.text.len() + data.len() <= SMALL {
            self.text.extend_from_slice(&data);
            self.text.extend_from_slice(chunk_end);
        } else {
            (self.data, self.chunk_end) = (data, chunk_end);
        }
        Ok(())
    }

    /// Writes everything; reports the length of each write.
    pub fn poll_write<I: AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
        mut wrote: impl FnMut(usize),
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let text = &self.text[self.written..];
            let io = Pin::new(&mut *io);
            let length = if self.data.is_empty() && self.chunk_end.is_empty() {
                ready!(io.poll_write(context, text))?
            } else {
                let slices = [IoSlice::new(text), IoSlice::new(&self.data), IoSlice::new(self.chunk_end)];
                ready!(io.poll_write_vectored(context, &slices))?
            };
            if length == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            wrote(length);
            let of_text = length.min(text.len());
            let of_data = (length - of_text).min(self.data.len());
            self.written += of_text;
            self.data.advance(of_data);
            self.chunk_end = &self.chunk_end[length - of_text - of_data..];
        }
        self.text.clear();
        self.written = 0;
        // An empty frame would keep its memory, which the next one can use.
        self.data = Bytes::new();
        Poll::Ready(Ok(()))
    }
}

impl Framing {
    /// Writes the start of a chunk, and returns its end.
    fn begin_chunk(&mut self, text: &mut Vec<u8>, length: usize) -> Result<&'static [u8], InvalidHttp> {
        match self {
            // The source of the body has checked the length; otherwise the excess would be read as another message.
            Self::Length(remaining) => {
                *remaining = remaining.checked_sub(length as u64).ok_or(InvalidHttp("body longer than its length"))?;
            }
            // An empty chunk would be the end.
            Self::Chunked if length == 0 => {}
            Self::Chunked => {
                put_hex(text, length);
                text.extend_from_slice(b"\r\n");
                return Ok(b"\r\n");
            }
            Self::UntilClosed => {}
        }
        Ok(b"")
    }

    /// Writes the end of a body.
    pub fn end(&self, text: &mut Vec<u8>) -> Result<(), InvalidHttp> {
        match self {
            Self::Length(0) | Self::UntilClosed => Ok(()),
            Self::Length(_) => Err(InvalidHttp("body shorter than its length")),
            Self::Chunked => {
                text.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
        }
    }

    /// Writes the end of a body with trailers.
    pub fn end_with(&self, text: &mut Vec<u8>, trailers: &HeaderMap) -> Result<(), InvalidHttp> {
        let Self::Chunked = self else { return self.end(text) };
        text.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            write_field(text, name.as_str(), value.as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Writes a header field.
#[inline]
pub fn write_field(text: &mut Vec<u8>, name: &str, value: &[u8]) {
    // Reserves once: the four parts would each check the capacity.
    text.reserve(name.len() + value.len() + 4);
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

/// Writes `Content-Length`.
pub fn write_length(text: &mut Vec<u8>, length: u64) {
    write_field(text, "content-length", itoa::Buffer::new().format(length).as_bytes());
}

/// Writes a number in hexadecimal digits.
fn put_hex(text: &mut Vec<u8>, number: usize) {
    let digits = (usize::BITS - number.leading_zeros()).div_ceil(4).max(1);
    text.extend((0..digits).rev().map(|digit| b"0123456789ABCDEF"[number >> (4 * digit) & 15]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_hexadecimal_digits() {
        for number in [0, 1, 9, 10, 15, 16, 255, 256, 4_096, 65_535, 1 << 40, usize::MAX] {
            let mut text = Vec::new();
            put_hex(&mut text, number);
            assert_eq!(text, format!("{number:X}").as_bytes());
        }
    }

    #[test]
    fn a_body_keeps_to_its_length() {
        let (mut buffer, mut framing) = (WriteBuffer::default(), Framing::Length(5));
        buffer.push(&mut framing, Bytes::from_static(b"hel")).unwrap();
        assert!(framing.end(&mut buffer.text).is_err());
        assert!(buffer.push(&mut framing, Bytes::from_static(b"low")).is_err());
        buffer.push(&mut framing, Bytes::from_static(b"lo")).unwrap();
        framing.end(&mut buffer.text).unwrap();
        assert_eq!(buffer.text, b"hello");
    }

    #[test]
    fn an_empty_frame_is_not_the_end_of_a_chunked_body() {
        let (mut buffer, mut framing) = (WriteBuffer::default(), Framing::Chunked);
        for data in ["a", "", "bc"] {
            buffer.push(&mut framing, Bytes::from(data)).unwrap();
        }
        framing.end(&mut buffer.text).unwrap();
        assert_eq!(buffer.text, b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n");
    }
}
