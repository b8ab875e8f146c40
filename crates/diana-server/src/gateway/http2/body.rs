//! A body that comes over an HTTP/2 stream.

use bytes::Bytes;
use h2::RecvStream;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A body that comes over an HTTP/2 stream. Window is given back as its pieces are taken.
pub(in crate::gateway) struct Http2Body {
    stream: RecvStream,
    /// How many bytes are still to come, if the head says so. h2 has the rest of the stream agree with that.
    left: Option<u64>,
    is_data_over: bool,
}

impl Http2Body {
    pub(in crate::gateway) fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        let left = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        Self { stream, left, is_data_over: false }
    }
}

impl Body for Http2Body {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_data_over {
            if let Some(data) = ready!(self.stream.poll_data(context)) {
                let data = data?;
                self.stream.flow_control().release_capacity(data.len())?;
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            self.is_data_over = true;
        }
        let trailers = ready!(self.stream.poll_trailers(context))?;
        Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}
