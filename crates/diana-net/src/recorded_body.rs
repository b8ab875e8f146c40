//! The body of a response, with the record of its request: the request is finished when the last byte has been sent, or when
//! the body is dropped.

use crate::request_record::RequestRecord;
use bytes::Bytes;
use diana_metrics::Outcome;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The body of a response. Dropping it, sent or not, finishes the request.
#[derive(Debug)]
pub struct RecordedBody<B> {
    body: B,
    record: RequestRecord,
}

/// The body of a response that is in memory.
pub type LocalBody = RecordedBody<Full<Bytes>>;

impl<B> RecordedBody<B> {
    /// Creates the body of a response.
    pub fn new(body: B, record: RequestRecord) -> Self {
        Self { body, record }
    }

    /// Converts the body.
    pub fn map<C>(self, convert: impl FnOnce(B) -> C) -> RecordedBody<C> {
        RecordedBody { body: convert(self.body), record: self.record }
    }

    /// Records that the client disconnected before it got any of the response.
    pub fn client_disconnected(&mut self) {
        self.record.client_disconnected();
    }
}

impl RequestRecord {
    /// Ends the request with this response.
    pub fn respond(mut self, response: Response<Full<Bytes>>, outcome: Outcome) -> Response<LocalBody> {
        self.outcome = outcome;
        self.status(response.status());
        response.map(|body| RecordedBody::new(body, self))
    }
}

impl LocalBody {
    /// Takes the whole body, to be sent at once.
    pub(crate) fn take(&mut self) -> Option<Bytes> {
        let frame = Pin::new(&mut self.body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Some(Ok(frame))) = frame else { return None };
        let data = frame.into_data().ok()?;
        self.record.sent(data.len());
        Some(data)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RecordedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => self.record.sent(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(_))) => self.record.aborted(),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
