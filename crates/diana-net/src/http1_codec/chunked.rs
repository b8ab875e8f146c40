//! Decodes a chunked body with optional trailers (RFC 9112, section 7.1), of a request or a response.

use super::InvalidHttp;
use super::body_decoder::take;
use bytes::{Buf, Bytes, BytesMut};
use diana_http::head::is_trailer_allowed;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

/// The maximum length of a chunk's size line, and of all trailers.
const MAX_LINE: usize = 4 << 10;
const MAX_TRAILERS_LENGTH: usize = 16 << 10;
const MAX_TRAILERS: usize = 64;
/// The maximum length of the extensions of all chunks together: no service uses them, so they only cost time.
const MAX_EXTENSIONS: usize = 16 << 10;
/// The maximum number of digits of a size.
const MAX_DIGITS: usize = 15;

/// Decodes a chunked body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkedDecoder {
    state: ChunkState,
    /// The total length of the extensions so far.
    extensions: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
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

/// A chunk's size line: its length with the line end, the size, and the length of the extensions.
#[derive(Debug, PartialEq, Eq)]
struct SizeLine {
    length: usize,
    size: u64,
    extensions: usize,
}

impl ChunkedDecoder {
    /// Returns `true` if the last chunk has been decoded.
    pub fn is_over(self) -> bool {
        self.state == ChunkState::Done
    }

    /// Returns how many bytes are worth reading at once. Usually another chunk follows this one.
    pub fn expects(self) -> usize {
        match self.state {
            ChunkState::Data(remaining) => usize::try_from(remaining).unwrap_or(usize::MAX).saturating_add(MAX_LINE),
            _ => 0,
        }
    }

    /// Returns the next frame, if the input has one.
    pub fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, InvalidHttp> {
        loop {
            match self.state {
                ChunkState::Length => {
                    let Some(line) = size_line(input)? else { return Ok(None) };
                    self.extensions += line.extensions;
                    if self.extensions > MAX_EXTENSIONS {
                        return Err(InvalidHttp("chunk extensions too long"));
                    }
                    input.advance(line.length);
                    self.state = if line.size == 0 { ChunkState::Trailers } else { ChunkState::Data(line.size) };
                }
                ChunkState::Data(_) if input.is_empty() => return Ok(None),
                ChunkState::Data(remaining) => {
                    let length = input.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
                    let remaining = remaining - length as u64;
                    self.state = if remaining == 0 { ChunkState::LineEnd } else { ChunkState::Data(remaining) };
                    return Ok(Some(Frame::data(take(input, length))));
                }
                ChunkState::LineEnd if input.len() < 2 => return Ok(None),
                ChunkState::LineEnd => {
                    if !input.starts_with(b"\r\n") {
                        return Err(InvalidHttp("chunk longer than its size"));
                    }
                    input.advance(2);
                    self.state = ChunkState::Length;
                }
                ChunkState::Trailers => {
                    let Some(trailers) = trailers(input)? else { return Ok(None) };
                    self.state = ChunkState::Done;
                    return Ok((!trailers.is_empty()).then(|| Frame::trailers(trailers)));
                }
                ChunkState::Done => return Ok(None),
            }
        }
    }
}

/// Parses a chunk's size line, if it is complete: `1f[;extension]`, where white space may follow the digits.
///
/// httparse takes a line without a digit for zero, which would be the end, and accepts any byte in an extension. A proxy
/// that ends a line at a bare line feed would see other chunks in the same bytes, so no control character is accepted.
fn size_line(input: &[u8]) -> Result<Option<SizeLine>, InvalidHttp> {
    const INVALID: InvalidHttp = InvalidHttp("invalid chunk size");
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits > MAX_DIGITS || (digits == 0 && !input.is_empty()) {
        return Err(INVALID);
    }
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    let text = input[digits..].iter().take_while(|byte| is_text(byte)).count();
    let (extension, rest) = input[digits..].split_at(text);
    if text > 0 && !extension.trim_ascii_start().starts_with(b";") && !extension.trim_ascii().is_empty() {
        return Err(INVALID);
    }
    match rest {
        [b'\r', b'\n', ..] => {
            let size = input[..digits].iter().fold(0, |size, digit| size << 4 | hex(*digit));
            Ok(Some(SizeLine { length: digits + text + 2, size, extensions: text }))
        }
        [] | [b'\r'] if digits + text < MAX_LINE => Ok(None),
        _ => Err(INVALID),
    }
}

/// Returns the value of a hexadecimal digit.
fn hex(digit: u8) -> u64 {
    char::from(digit).to_digit(16).map_or(0, u64::from)
}

/// Parses the trailers, if they are complete.
fn trailers(input: &mut BytesMut) -> Result<Option<HeaderMap>, InvalidHttp> {
    let mut fields = [httparse::EMPTY_HEADER; MAX_TRAILERS];
    let (length, fields) = match httparse::parse_headers(input, &mut fields) {
        Ok(httparse::Status::Complete(parsed)) => parsed,
        Ok(httparse::Status::Partial) if input.len() < MAX_TRAILERS_LENGTH => return Ok(None),
        _ => return Err(InvalidHttp("invalid trailers")),
    };
    // A line that ends in a line feed alone may be the end of the message for one server, and not for another.
    let line_feeds = (0..length).filter(|at| input[*at] == b'\n');
    if line_feeds.into_iter().any(|at| at == 0 || input[at - 1] != b'\r') {
        return Err(InvalidHttp("invalid line end in trailers"));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_lines() {
        let line = |length, size, extensions| Ok(Some(SizeLine { length, size, extensions }));
        assert_eq!(size_line(b"5\r\nhello"), line(3, 5, 0));
        assert_eq!(size_line(b"00fF\r\n"), line(6, 255, 0));
        assert_eq!(size_line(b"5 \t\r\n"), line(5, 5, 2));
        assert_eq!(size_line(b"5 ; a=\"b\"\r\n"), line(11, 5, 8));
        for partial in [&b""[..], b"5", b"5;a", b"5\r", b"5;a\r"] {
            assert_eq!(size_line(partial), Ok(None));
        }
        for invalid in
            [&b"\r\n"[..], b";a\r\n", b" 5\r\n", b"5\n", b"5;a\nb\r\n", b"5;a\rb", b"5 5\r\n", b"5\x00", b"5;\x7f\r\n"]
        {
            assert!(size_line(invalid).is_err(), "{}", invalid.escape_ascii());
        }
        assert!(size_line(b"1000000000000000\r\n").is_err());
        assert!(size_line(&[b'5', b';'].iter().copied().chain([b'a'; MAX_LINE]).collect::<Vec<_>>()).is_err());
    }

    #[test]
    fn all_extensions_together_are_bounded() {
        let mut input = BytesMut::from(format!("1;{}\r\nx\r\n", "a".repeat(1_000)).repeat(20).as_str());
        let mut decoder = ChunkedDecoder::default();
        let mut chunks = 0;
        let ended = loop {
            match decoder.take(&mut input) {
                Ok(Some(_)) => chunks += 1,
                ended => break ended.map(|frame| frame.is_some()),
            }
        };
        assert_eq!((chunks, ended), (16, Err(InvalidHttp("chunk extensions too long"))));
    }
}
