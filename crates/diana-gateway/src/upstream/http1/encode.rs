//! Writes a request: its head as text, then its body, with a length or chunked.

use super::super::WireError;
use super::super::connector::UpstreamIo;
use crate::connection::ForwardedHeaders;
use crate::request::RequestBodyStream;
use crate::request::head::{HeaderSink, UpstreamRequest};
use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderMap, HeaderName, Method, Version};
use http_body::Body;
use std::io::{IoSlice, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Frames up to this size are copied into the text buffer, so that both are written together.
const SMALL: usize = 8 << 10;

/// Writes a request.
#[derive(Default)]
pub(super) struct RequestWriter {
    /// The bytes to write: the text, then a frame of the body, then the end of its chunk.
    text: BytesMut,
    data: Bytes,
    chunk_end: &'static [u8],
    body: Option<Sending>,
    progress: Progress,
    written: u64,
}

/// A body that is being sent.
struct Sending {
    body: RequestBodyStream,
    framing: Framing,
}

/// How the end of a body is marked.
enum Framing {
    /// The number of bytes that are still to come.
    Length(u64),
    Chunked,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// No byte has been written.
    Untouched,
    Started,
    #[default]
    Done,
    /// The request was written incompletely, and will not be completed.
    Broken,
}

impl RequestWriter {
    /// Starts a request.
    pub(super) fn begin(&mut self, request: UpstreamRequest<'_>, upstream_host: &[u8], body: RequestBodyStream) {
        self.text.clear();
        (self.data, self.chunk_end) = (Bytes::new(), b"");
        self.progress = Progress::Untouched;
        let framing = framing(request, &body);
        write_head(&mut self.text, request, upstream_host, framing.as_ref());
        self.body = framing.map(|framing| Sending { body, framing });
    }

    /// Returns `true` if more is to be written.
    pub(super) fn is_sending(&self) -> bool {
        matches!(self.progress, Progress::Untouched | Progress::Started)
    }

    /// Returns `true` if nothing has been written, nor read from the client.
    pub(super) fn is_untouched(&self) -> bool {
        self.progress == Progress::Untouched
    }

    /// Returns the body of a request of which nothing has been written.
    pub(super) fn take_body(&mut self) -> RequestBodyStream {
        self.body.take().map_or_else(RequestBodyStream::empty, |sending| sending.body)
    }

    /// Returns `true` if there are bytes that the upstream has not accepted.
    pub(super) fn is_blocked(&self) -> bool {
        !(self.text.is_empty() && self.data.is_empty() && self.chunk_end.is_empty())
    }

    /// Returns the number of bytes written, of all requests.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Writes no more of the request.
    pub(super) fn abort(&mut self) {
        *self = Self { written: self.written, progress: Progress::Broken, ..Self::default() };
    }

    /// Frees the buffer if it is larger than most heads need.
    pub(super) fn trim(&mut self) {
        if self.text.capacity() > SMALL {
            self.text = BytesMut::new();
        }
    }

    /// Ready when the whole request has been written. An error is permanent.
    pub(super) fn poll(&mut self, io: &mut UpstreamIo, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        match self.progress {
            Progress::Done => return Poll::Ready(Ok(())),
            Progress::Broken => return Poll::Ready(Err(WireError::Body)),
            Progress::Untouched | Progress::Started => {}
        }
        let polled = self.poll_write(io, context);
        if matches!(polled, Poll::Ready(Err(_))) && !self.is_untouched() {
            self.progress = Progress::Broken;
        }
        polled
    }

    fn poll_write(&mut self, io: &mut UpstreamIo, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        loop {
            let filled = self.fill(context);
            if let Poll::Ready(Err(error)) = filled {
                return Poll::Ready(Err(error));
            }
            ready!(self.write(io, context))?;
            if self.body.is_none() {
                ready!(Pin::new(&mut *io).poll_flush(context))?;
                self.progress = Progress::Done;
                return Poll::Ready(Ok(()));
            }
            if filled.is_pending() {
                let _ = Pin::new(&mut *io).poll_flush(context)?;
                return Poll::Pending;
            }
        }
    }

    /// Writes the buffered bytes.
    fn write(&mut self, io: &mut UpstreamIo, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while self.is_blocked() {
            let io = Pin::new(&mut *io);
            let written = if self.data.is_empty() && self.chunk_end.is_empty() {
                ready!(io.poll_write(context, &self.text))?
            } else {
                let slices = [IoSlice::new(&self.text), IoSlice::new(&self.data), IoSlice::new(self.chunk_end)];
                ready!(io.poll_write_vectored(context, &slices))?
            };
            if written == 0 {
                return Poll::Ready(Err(WireError::Closed));
            }
            self.progress = Progress::Started;
            self.written += written as u64;
            let of_text = written.min(self.text.len());
            let of_data = (written - of_text).min(self.data.len());
            self.text.advance(of_text);
            self.data.advance(of_data);
            self.chunk_end = &self.chunk_end[written - of_text - of_data..];
        }
        // The buffer is empty now, so its memory can be reused.
        self.text.clear();
        Poll::Ready(Ok(()))
    }

    /// Reads the available part of the body while the buffer is small. Pending if more comes later.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while let Some(sending) = &mut self.body {
            if !self.chunk_end.is_empty() || !self.data.is_empty() || self.text.len() > SMALL {
                break;
            }
            let frame = ready!(Pin::new(&mut sending.body).poll_frame(context));
            self.progress = Progress::Started;
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(Err(WireError::Body)),
                None => {
                    sending.framing.end(&mut self.text)?;
                    self.body = None;
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let chunk_end = sending.framing.begin_chunk(&mut self.text, data.len() as u64)?;
                    if self.text.len() + data.len() <= SMALL {
                        self.text.extend_from_slice(&data);
                        self.text.extend_from_slice(chunk_end);
                    } else {
                        (self.data, self.chunk_end) = (data, chunk_end);
                    }
                    // With a known length, the end needs no further poll.
                    if matches!(sending.framing, Framing::Length(0)) && sending.body.is_end_stream() {
                        self.body = None;
                    }
                }
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        sending.framing.end_with(&mut self.text, trailers)?;
                        self.body = None;
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Framing {
    /// Writes the start of a chunk, and returns its end.
    fn begin_chunk(&mut self, text: &mut BytesMut, length: u64) -> Result<&'static [u8], WireError> {
        match self {
            // The client's side has checked the length; otherwise the excess would be read as another request.
            Self::Length(remaining) => *remaining = remaining.checked_sub(length).ok_or(WireError::Body)?,
            // An empty chunk would be the end.
            Self::Chunked if length == 0 => {}
            Self::Chunked => {
                put(text, format_args!("{length:X}\r\n"));
                return Ok(b"\r\n");
            }
        }
        Ok(b"")
    }

    /// Writes the end of a body.
    fn end(&self, text: &mut BytesMut) -> Result<(), WireError> {
        match self {
            Self::Length(0) => Ok(()),
            Self::Length(_) => Err(WireError::Body),
            Self::Chunked => {
                text.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
        }
    }

    /// Writes the end of a body with trailers.
    fn end_with(&self, text: &mut BytesMut, trailers: &HeaderMap) -> Result<(), WireError> {
        let Self::Chunked = self else { return self.end(text) };
        text.extend_from_slice(b"0\r\n");
        for (name, value) in trailers {
            write_field(text, name.as_str(), value.as_bytes());
        }
        text.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// Returns the framing of a body, or `None` without a body.
fn framing(request: UpstreamRequest<'_>, body: &RequestBodyStream) -> Option<Framing> {
    if body.is_empty() {
        return None;
    }
    let headers = &request.head.headers;
    // HTTP/2 allows trailers after a body with a stated length, HTTP/1.1 only after a chunked body.
    let has_trailers = request.head.version == Version::HTTP_2 && headers.contains_key(TRAILER);
    let length = headers.get(CONTENT_LENGTH).filter(|_| !has_trailers);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    Some(length.map_or(Framing::Chunked, Framing::Length))
}

fn write_head(text: &mut BytesMut, request: UpstreamRequest<'_>, upstream_host: &[u8], framing: Option<&Framing>) {
    text.extend_from_slice(request.head.method.as_str().as_bytes());
    text.extend_from_slice(b" ");
    text.extend_from_slice(request.target().as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let length = request.write_headers(upstream_host, &mut Text(text));
    match framing {
        Some(Framing::Length(length)) => put(text, format_args!("content-length: {length}\r\n")),
        Some(Framing::Chunked) => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        None => {
            let has_body_by_default = matches!(request.head.method, Method::POST | Method::PUT | Method::PATCH);
            if has_body_by_default || length.is_some() {
                text.extend_from_slice(b"content-length: 0\r\n");
            }
        }
    }
    text.extend_from_slice(b"\r\n");
}

/// Writes headers as text.
struct Text<'a>(&'a mut BytesMut);

impl HeaderSink for Text<'_> {
    fn field(&mut self, name: &HeaderName, value: &[u8]) {
        write_field(self.0, name.as_str(), value);
    }

    fn forwarded(&mut self, forwarded: &ForwardedHeaders) {
        self.0.extend_from_slice(forwarded.lines.as_bytes());
    }
}

fn write_field(text: &mut BytesMut, name: &str, value: &[u8]) {
    text.extend_from_slice(name.as_bytes());
    text.extend_from_slice(b": ");
    text.extend_from_slice(value);
    text.extend_from_slice(b"\r\n");
}

fn put(text: &mut BytesMut, arguments: std::fmt::Arguments<'_>) {
    use bytes::BufMut;
    // Writing to memory can't fail.
    let _ = text.writer().write_fmt(arguments);
}
