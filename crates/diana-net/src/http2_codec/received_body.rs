//! Bodies that are received over HTTP/2 streams.
//!
//! # Why request bodies are read ahead
//! A request may wait in a queue, or for an upstream that does not read. The flow-control window bounds how much of its
//! body can arrive meanwhile, but not its trailers, and h2 keeps them until they are read. So the stream's task reads
//! ahead, and [`ReadAhead`] reports the size of the trailers, which count like the head. The window of data that was
//! read ahead is released only when the data is consumed.

use super::compact_head::{compact_fields, fields_size};
use super::interim::StreamHandle;
use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

/// A body that is received over an HTTP/2 stream. Window is released as its data is consumed.
pub struct Http2Body {
    stream: RecvStream,
    /// Data that has been read but not consumed.
    ahead: BytesMut,
    /// The number of bytes to be consumed, if the head states a length. h2 checks that the stream matches it.
    remaining: Option<u64>,
    next: Next,
}

/// The part that is read next.
enum Next {
    Data,
    Trailers,
    /// The end of the body, with the trailers until they are consumed.
    End(Option<HeaderMap>),
}

impl Http2Body {
    /// Creates the body of a message with these headers.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let remaining = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, ahead: BytesMut::new(), remaining, next: Next::Data }
    }

    /// Returns the next frame, with at most `max` bytes.
    pub fn poll_frame(
        &mut self,
        max: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        loop {
            let data = if !self.ahead.is_empty() {
                let length = self.ahead.len().min(max);
                self.ahead.split_to(length).freeze()
            } else if let Next::End(trailers) = &mut self.next {
                return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            } else if let Some(mut data) = ready!(self.poll_read(context))? {
                if data.len() > max {
                    self.ahead.extend_from_slice(&data.split_off(max));
                }
                data
            } else {
                continue;
            };
            self.stream.flow_control().release_capacity(data.len())?;
            self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    /// Reads data. Returns `None` if `next` has changed.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, h2::Error>> {
        if matches!(self.next, Next::Data) {
            let data = ready!(self.stream.poll_data(context)).transpose()?;
            if data.is_none() {
                self.next = Next::Trailers;
            }
            return Poll::Ready(Ok(data));
        }
        self.next = Next::End(ready!(self.stream.poll_trailers(context))?);
        Poll::Ready(Ok(None))
    }

    /// Reads all that is available. Ready at the end of the stream.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        while !matches!(self.next, Next::End(_)) {
            if let Some(data) = ready!(self.poll_read(context))? {
                self.ahead.extend_from_slice(&data);
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns `true` if all of it has been consumed.
    pub fn is_end_stream(&self) -> bool {
        let is_over = match &self.next {
            Next::End(trailers) => trailers.is_none(),
            Next::Data | Next::Trailers => self.stream.is_end_stream(),
        };
        is_over && self.ahead.is_empty()
    }

    /// Returns what is known of the length of the rest.
    pub fn size_hint(&self) -> SizeHint {
        match self.remaining {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(remaining) => SizeHint::with_exact(remaining),
            None => SizeHint::default(),
        }
    }
}

impl fmt::Debug for Http2Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http2Body").field("remaining", &self.remaining).finish_non_exhaustive()
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        if !self.ahead.is_empty() {
            // Fails only if the stream is closed, and its window with it.
            let _ = self.stream.flow_control().release_capacity(self.ahead.len());
        }
    }
}

/// The body of a client's request over HTTP/2.
pub(crate) struct Http2RequestBody {
    shared: Arc<Mutex<SharedBody>>,
    /// The stream of a client that waits for `100 Continue`.
    expects: Option<StreamHandle>,
}

/// Reads a request's body ahead.
pub(crate) struct ReadAhead(Weak<Mutex<SharedBody>>);

struct SharedBody {
    body: Http2Body,
    /// The task that reads ahead; h2 wakes only this one.
    reader: Option<Waker>,
    /// The task that waits for the next frame.
    consumer: Option<Waker>,
}

impl Http2RequestBody {
    pub(crate) fn new(stream: RecvStream, headers: &HeaderMap, handle: &StreamHandle) -> (Self, ReadAhead) {
        let expects = headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let shared = SharedBody { body: Http2Body::new(stream, headers), reader: None, consumer: None };
        let shared = Arc::new(Mutex::new(shared));
        let ahead = ReadAhead(Arc::downgrade(&shared));
        (Self { shared, expects: expects.then(|| handle.clone()) }, ahead)
    }
}

impl Body for Http2RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let expects = self.expects.take();
        let mut shared = self.shared.lock();
        let SharedBody { body, reader, consumer } = &mut *shared;
        let reader = reader.as_ref().unwrap_or(context.waker());
        let polled = body.poll_frame(usize::MAX, &mut Context::from_waker(reader));
        if polled.is_pending() {
            *consumer = Some(context.waker().clone());
            drop(shared);
            if let Some(client) = expects {
                client.send_continue();
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.shared.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.shared.lock().body.size_hint()
    }
}

impl ReadAhead {
    /// Creates a reader for a request without a body.
    pub(crate) fn none() -> Self {
        Self(Weak::new())
    }

    /// Reads the available data. Ready once, with the size of the trailers if they have to be stored.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<usize> {
        let Some(shared) = self.0.upgrade() else { return Poll::Pending };
        let mut shared = shared.lock();
        let SharedBody { body, reader, consumer } = &mut *shared;
        if !reader.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *reader = Some(context.waker().clone());
        }
        let before = body.ahead.len();
        let polled = body.poll_ahead(context);
        if polled.is_pending() && body.ahead.len() == before {
            return Poll::Pending;
        }
        let size = match &mut body.next {
            Next::End(Some(trailers)) => {
                compact_fields(trailers);
                fields_size(trailers)
            }
            _ => 0,
        };
        let consumer = consumer.take();
        if polled.is_ready() {
            *reader = None;
            self.0 = Weak::new();
        }
        drop(shared);
        if let Some(consumer) = consumer {
            consumer.wake();
        }
        polled.map(|_| size)
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let consumer = {
            let mut shared = shared.lock();
            shared.reader = None;
            shared.consumer.take()
        };
        // From now on h2 wakes this task.
        if let Some(consumer) = consumer {
            consumer.wake();
        }
    }
}
