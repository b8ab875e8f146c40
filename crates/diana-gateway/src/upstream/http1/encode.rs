//! Writes a request: its head as text, then its body, with a length or chunked.

use super::super::WireError;
use super::super::connector::UpstreamIo;
use crate::head::{HeaderSink, UpstreamRequest};
use crate::paced_upload::PacedUpload;
use diana_net::ForwardedHeaders;
use diana_net::http1_codec::InvalidHttp;
use diana_net::http1_codec::body_writer::{Framing, WriteBuffer, write_field, write_length};
use http::header::{CONTENT_LENGTH, TRAILER};
use http::{HeaderName, Method, Version};
use http_body::Body;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// Writes a request.
#[derive(Default)]
pub(super) struct RequestWriter {
    buffer: WriteBuffer,
    body: Option<Sending>,
    progress: Progress,
    written: u64,
}

/// A body that is being sent.
struct Sending {
    body: PacedUpload,
    framing: Framing,
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
    pub(super) fn begin(&mut self, request: UpstreamRequest<'_>, upstream_host: &[u8], body: PacedUpload) {
        // Nothing is left of the last request, or the connection would not have been reused.
        self.progress = Progress::Untouched;
        let framing = framing(request, &body);
        write_head(&mut self.buffer.text, request, upstream_host, framing.as_ref());
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
    pub(super) fn take_body(&mut self) -> PacedUpload {
        self.body.take().map_or_else(PacedUpload::empty, |sending| sending.body)
    }

    /// Returns `true` if there are bytes that the upstream has not accepted.
    pub(super) fn is_blocked(&self) -> bool {
        !self.buffer.is_empty()
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
        self.buffer.trim();
    }

    /// Is ready when the whole request has been written. An error is permanent.
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
        let Self { buffer, progress, written, .. } = self;
        let wrote = |length| {
            *progress = Progress::Started;
            *written += length as u64;
        };
        buffer.poll_write(io, context, wrote).map_err(|error| match error.kind() {
            io::ErrorKind::WriteZero => WireError::Closed,
            _ => error.into(),
        })
    }

    /// Reads the available part of the body while the buffer is small. Pending if more comes later.
    fn fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), WireError>> {
        while let Some(sending) = &mut self.body {
            if !self.buffer.has_room() {
                break;
            }
            let frame = ready!(Pin::new(&mut sending.body).poll_frame(context));
            self.progress = Progress::Started;
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) => return Poll::Ready(Err(WireError::Body)),
                None => {
                    sending.framing.end(&mut self.buffer.text).map_err(body_error)?;
                    self.body = None;
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    self.buffer.push(&mut sending.framing, data).map_err(body_error)?;
                    // With a known length, the end needs no further poll.
                    if matches!(sending.framing, Framing::Length(0)) && sending.body.is_end_stream() {
                        self.body = None;
                    }
                }
                Err(frame) => {
                    if let Some(trailers) = frame.trailers_ref() {
                        sending.framing.end_with(&mut self.buffer.text, trailers).map_err(body_error)?;
                        self.body = None;
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns the error for a body that is longer or shorter than its length.
fn body_error(_: InvalidHttp) -> WireError {
    WireError::Body
}

/// Returns the framing of a body, or `None` without a body.
fn framing(request: UpstreamRequest<'_>, body: &PacedUpload) -> Option<Framing> {
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

fn write_head(text: &mut Vec<u8>, request: UpstreamRequest<'_>, upstream_host: &[u8], framing: Option<&Framing>) {
    text.extend_from_slice(request.head.method.as_str().as_bytes());
    text.extend_from_slice(b" ");
    text.extend_from_slice(request.target().as_bytes());
    text.extend_from_slice(b" HTTP/1.1\r\n");
    let length = request.write_headers(upstream_host, &mut Text(text));
    match framing {
        Some(Framing::Length(length)) => write_length(text, *length),
        // A request can't end with its connection, so the last case does not occur.
        Some(Framing::Chunked | Framing::UntilClosed) => text.extend_from_slice(b"transfer-encoding: chunked\r\n"),
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
struct Text<'a>(&'a mut Vec<u8>);

impl HeaderSink for Text<'_> {
    fn field(&mut self, name: &HeaderName, value: &[u8]) {
        write_field(self.0, name.as_str(), value);
    }

    fn forwarded(&mut self, forwarded: &ForwardedHeaders) {
        self.0.extend_from_slice(forwarded.lines.as_bytes());
    }
}
