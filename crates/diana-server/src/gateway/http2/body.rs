//! A body that comes over an HTTP/2 stream.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};
use std::task::{Context, Poll, ready};

/// A body that comes over an HTTP/2 stream. Window is given back as its pieces are taken.
pub(in crate::gateway) struct Http2Body {
    stream: RecvStream,
    /// What has been read and not been taken.
    ahead: BytesMut,
    /// How many bytes are still to be taken, if the head says so. h2 has the rest of the stream agree with that.
    left: Option<u64>,
    next: Next,
}

/// What is read next.
enum Next {
    Data,
    Trailers,
    /// Nothing; the trailers are still to be taken.
    End(Option<HeaderMap>),
}

impl Http2Body {
    pub(in crate::gateway) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, ahead: BytesMut::new(), left, next: Next::Data }
    }

    /// The next frame, with so many bytes at most.
    pub(in crate::gateway) fn poll_frame(
        &mut self,
        most: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        loop {
            let data = if !self.ahead.is_empty() {
                let length = self.ahead.len().min(most);
                self.ahead.split_to(length).freeze()
            } else if let Next::End(trailers) = &mut self.next {
                return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            } else if let Some(mut data) = ready!(self.poll_read(context))? {
                if data.len() > most {
                    self.ahead.extend_from_slice(&data.split_off(most));
                }
                data
            } else {
                continue;
            };
            self.stream.flow_control().release_capacity(data.len())?;
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
    }

    /// Reads data, or nothing, if `next` has changed.
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

    pub(in crate::gateway) fn is_end_stream(&self) -> bool {
        let is_over = match &self.next {
            Next::End(trailers) => trailers.is_none(),
            Next::Data | Next::Trailers => self.stream.is_end_stream(),
        };
        is_over && self.ahead.is_empty()
    }

    pub(in crate::gateway) fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl Drop for Http2Body {
    fn drop(&mut self) {
        if !self.ahead.is_empty() {
            // Fails only if the stream is gone, and its window with it.
            let _ = self.stream.flow_control().release_capacity(self.ahead.len());
        }
    }
}
