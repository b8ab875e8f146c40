//! The head of an answer, and how its body ends (RFC 9112, section 6).

use super::super::WireError;
use super::chunked::ChunkedDecoder;
use crate::gateway::head::{self, Named};
use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Response, StatusCode, Version};
use http_body::{Frame, SizeHint};
use std::mem::MaybeUninit;

/// How long a head may be, and how many fields it may have.
const LONGEST: usize = 64 << 10;
const MOST_FIELDS: usize = 128;
/// Pieces of a body up to this are copied.
const SMALL: usize = 2 << 10;
/// How often an upstream may say that it is still at it.
pub(super) const MOST_NEWS: usize = 16;

/// The head of an answer.
pub(super) struct ResponseHead {
    /// Without what concerns this connection only; if it becomes something else, `Upgrade` says what.
    pub(super) response: Response<()>,
    pub(super) rest: BodyDecoder,
    /// Whether the upstream ends the connection after this, or can't be trusted to know where this ends.
    pub(super) is_last: bool,
}

/// What is still to come of an answer.
pub(super) enum BodyDecoder {
    Nothing,
    Length(u64),
    ChunkedDecoder(ChunkedDecoder),
    /// All that comes until the upstream ends the connection.
    UntilClosed,
}

/// Takes the head of an answer from what has come, if it is whole.
pub(super) fn read(input: &mut BytesMut, asked: &Method) -> Result<Option<ResponseHead>, WireError> {
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    let length = match config.parse_response_with_uninit_headers(&mut parsed, input, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if input.len() < LONGEST => return Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Err(WireError::NoHttp("the head of its answer is too long"));
        }
        Err(_) => return Err(WireError::NoHttp("the head of its answer is no HTTP")),
    };
    let (Some(version), Some(code)) = (parsed.version, parsed.code) else { return Ok(None) };
    let status = StatusCode::from_u16(code).map_err(|_| WireError::NoHttp("its status is none"))?;
    // Its own copy, in which its fields stay; what comes after it can then be read into the same memory as ever.
    let head = Bytes::copy_from_slice(&input[..length]);
    let start = input.as_ptr().addr();
    let kept = parsed.headers.iter().filter(|field| !is_connection(field.name)).count();
    let mut reading = Reading::new(status, version, asked, kept);
    for field in &*parsed.headers {
        if let Some(keeps) = plain_connection(field.name, field.value) {
            reading.keeps(keeps);
            continue;
        }
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let name = name.map_err(|_| WireError::NoHttp("a field of its answer has no name"))?;
        let from = if field.value.is_empty() { 0 } else { field.value.as_ptr().addr() - start };
        let value = HeaderValue::from_maybe_shared(head.slice(from..from + field.value.len()));
        reading.field(name, value.map_err(|_| WireError::NoHttp("a field of its answer is no text"))?)?;
    }
    input.advance(length);
    reading.end().map(Some)
}

/// A head whose fields are being looked at.
struct Reading {
    status: StatusCode,
    has_no_body: bool,
    is_http10: bool,
    headers: HeaderMap,
    named: Named,
    length: Option<u64>,
    is_chunked: bool,
    keeps: Option<bool>,
}

impl Reading {
    fn new(status: StatusCode, version: u8, asked: &Method, fields: usize) -> Self {
        let has_none =
            status.is_informational() || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        Self {
            status,
            has_no_body: has_none || *asked == Method::HEAD,
            is_http10: version == 0,
            // Those that tell the client where it stands come, too.
            headers: HeaderMap::with_capacity(fields + 2),
            named: Named::new(),
            length: None,
            is_chunked: false,
            keeps: None,
        }
    }

    fn field(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), WireError> {
        if name == CONTENT_LENGTH {
            let length = length(&value).ok_or(WireError::NoHttp("its length is no number"))?;
            match self.length.replace(length) {
                None => {
                    self.headers.insert(name, value);
                }
                Some(before) if before == length => {}
                Some(_) => return Err(WireError::NoHttp("it has two lengths")),
            }
        } else if name == TRANSFER_ENCODING {
            // Any other would have to be undone here.
            if self.is_chunked || self.is_http10 || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(WireError::NoHttp("its transfer-encoding is not just `chunked`"));
            }
            self.is_chunked = true;
        } else if name == CONNECTION {
            let words = value.to_str().unwrap_or_default().split(',').map(str::trim);
            words.filter_map(|word| keeps(word.as_bytes())).for_each(|keeps| self.keeps(keeps));
            head::name(&value, &mut self.named);
        } else if name == UPGRADE {
            if self.status == StatusCode::SWITCHING_PROTOCOLS {
                self.headers.insert(name, value);
            }
        } else if !head::ends_here(&name) {
            self.headers.append(name, value);
        }
        Ok(())
    }

    /// The upstream says whether it keeps the connection. Who says both ends it.
    fn keeps(&mut self, keeps: bool) {
        self.keeps = Some(keeps && self.keeps != Some(false));
    }

    fn end(mut self) -> Result<ResponseHead, WireError> {
        for name in self.named {
            self.headers.remove(name);
        }
        let mut is_last = !self.keeps.unwrap_or(!self.is_http10);
        if self.is_chunked && self.length.is_some() {
            // Somebody on the way may have gone by the other.
            self.headers.remove(CONTENT_LENGTH);
            is_last = true;
        }
        if self.status == StatusCode::NO_CONTENT && self.length.is_some_and(|length| length > 0) {
            // It has no body, whatever it says. An upstream that believes otherwise sends one.
            is_last = true;
        }
        let rest = match self.length {
            _ if self.has_no_body => BodyDecoder::Nothing,
            _ if self.is_chunked => BodyDecoder::ChunkedDecoder(ChunkedDecoder::default()),
            Some(0) => BodyDecoder::Nothing,
            Some(length) => BodyDecoder::Length(length),
            None => {
                is_last = true;
                BodyDecoder::UntilClosed
            }
        };
        let mut response = Response::new(());
        *response.status_mut() = self.status;
        *response.version_mut() = Version::HTTP_11;
        *response.headers_mut() = self.headers;
        Ok(ResponseHead { response, rest, is_last })
    }
}

/// What almost every `Connection` says: whether the upstream keeps it, and nothing else.
fn plain_connection(name: &str, value: &[u8]) -> Option<bool> {
    if is_connection(name) { keeps(value) } else { None }
}

fn is_connection(name: &str) -> bool {
    name.eq_ignore_ascii_case("connection")
}

/// What a word of `Connection` says about the connection itself.
fn keeps(word: &[u8]) -> Option<bool> {
    if word.eq_ignore_ascii_case(b"keep-alive") {
        Some(true)
    } else if word.eq_ignore_ascii_case(b"close") {
        Some(false)
    } else {
        None
    }
}

/// A length is digits, and nothing else: neither a sign nor a list.
fn length(value: &HeaderValue) -> Option<u64> {
    let is_number = !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    is_number.then(|| value.to_str().ok()?.parse().ok()).flatten()
}

/// Takes a piece from the beginning of what has come.
pub(super) fn take(input: &mut BytesMut, length: usize) -> Bytes {
    if length > SMALL {
        return input.split_to(length).freeze();
    }
    // To copy little costs less than to share the memory, and to need other for what comes next.
    let piece = Bytes::copy_from_slice(&input[..length]);
    input.advance(length);
    piece
}

impl BodyDecoder {
    /// The next piece, if there is one in what has come.
    pub(super) fn take(&mut self, input: &mut BytesMut) -> Result<Option<Frame<Bytes>>, WireError> {
        match self {
            Self::Nothing => Ok(None),
            Self::ChunkedDecoder(chunks) => chunks.take(input),
            Self::Length(_) | Self::UntilClosed if input.is_empty() => Ok(None),
            Self::Length(left) => {
                let come = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= come as u64;
                if *left == 0 {
                    *self = Self::Nothing;
                }
                Ok(Some(Frame::data(take(input, come))))
            }
            Self::UntilClosed => Ok(Some(Frame::data(take(input, input.len())))),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::ChunkedDecoder(chunks) => chunks.is_over(),
            Self::Length(_) | Self::UntilClosed => false,
        }
    }

    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(self, Self::UntilClosed)
    }

    /// How many bytes are worth reading at once.
    pub(super) fn expects(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Self::ChunkedDecoder(chunks) => chunks.expects(),
            Self::UntilClosed => usize::MAX,
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Length(left) => SizeHint::with_exact(*left),
            Self::ChunkedDecoder(_) | Self::UntilClosed => SizeHint::default(),
        }
    }
}
