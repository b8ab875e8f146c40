//! The body of an HTTP/1 request: the connection reads it, and the code that forwards it takes its frames.
//!
//! # What always holds
//! - One frame is buffered at most, and nothing is read before the receiver asks for a frame.
//! - A receiver that is dropped stops the body; the connection discards the rest, or closes ([`Demand`]).

use super::BodyFault;
use crate::http1_codec::MIN_READ;
use crate::http1_codec::body_decoder::BodyDecoder;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The body of a request, for the code that forwards it.
pub(crate) struct Http1RequestBody {
    shared: Arc<Mutex<SharedBody>>,
    /// The rest of the length, if the request states one.
    remaining: Option<u64>,
    is_over: bool,
}

/// The body of a request, for the connection that reads it.
pub(crate) struct BodySender {
    shared: Arc<Mutex<SharedBody>>,
    pub(crate) decoder: BodyDecoder,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) expects_continue: bool,
    /// The maximum number of bytes read at once: more if the client sends much.
    pub(crate) read_size: usize,
}

#[derive(Debug)]
struct SharedBody {
    frame: Option<Frame<Bytes>>,
    state: BodyState,
    demand: Demand,
    /// The task that waits for a frame.
    receiver: Option<Waker>,
    /// The task of the connection, while it waits for demand.
    connection: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    Open,
    Complete,
    Broken,
}

/// The receiver's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// No frame is demanded yet, or no more.
    Nothing,
    /// A frame.
    Frame,
    /// The rest is read and dropped, up to this many bytes.
    Discard(u64),
    /// The receiver was dropped: the rest is not read.
    Stop,
}

/// Creates both sides of a body.
pub(crate) fn channel(decoder: BodyDecoder, expects_continue: bool) -> (BodySender, Http1RequestBody) {
    let remaining = decoder.size_hint().exact();
    let shared =
        SharedBody { frame: None, state: BodyState::Open, demand: Demand::Nothing, receiver: None, connection: None };
    let shared = Arc::new(Mutex::new(shared));
    let body = Http1RequestBody { shared: Arc::clone(&shared), remaining, is_over: false };
    (BodySender { shared, decoder, expects_continue, read_size: MIN_READ }, body)
}

impl BodySender {
    /// Returns the receiver's demand. The task is woken when that changes, unless it is the one that changes it.
    pub(crate) fn demand(&self, context: &Context<'_>) -> Demand {
        let mut shared = self.shared.lock();
        if matches!(shared.demand, Demand::Nothing | Demand::Frame)
            && !shared.connection.as_ref().is_some_and(|known| known.will_wake(context.waker()))
        {
            shared.connection = Some(context.waker().clone());
        }
        shared.demand
    }

    /// Passes a frame to the receiver. Its task is woken, unless it is the current one.
    pub(crate) fn send(&self, frame: Frame<Bytes>, context: &Context<'_>) {
        let state = if self.decoder.is_over() { BodyState::Complete } else { BodyState::Open };
        self.update(state, Some(frame), context);
    }

    /// Ends the body.
    pub(crate) fn end(&self, context: &Context<'_>) {
        self.update(BodyState::Complete, None, context);
    }

    /// Aborts the body: it is invalid, or the client has disconnected.
    pub(crate) fn abort(&self, context: &Context<'_>) {
        self.update(BodyState::Broken, None, context);
    }

    fn update(&self, state: BodyState, frame: Option<Frame<Bytes>>, context: &Context<'_>) {
        let mut shared = self.shared.lock();
        shared.state = state;
        if frame.is_some() {
            shared.frame = frame;
        }
        if shared.demand == Demand::Frame {
            shared.demand = Demand::Nothing;
        }
        let receiver = shared.receiver.take();
        drop(shared);
        if let Some(receiver) = receiver.filter(|receiver| !receiver.will_wake(context.waker())) {
            receiver.wake();
        }
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        let mut shared = self.shared.lock();
        if shared.state == BodyState::Open {
            shared.state = BodyState::Broken;
        }
        let receiver = shared.receiver.take();
        drop(shared);
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

impl Http1RequestBody {
    /// Lets the connection read and drop the rest, up to `max` bytes.
    pub(crate) fn discard(self, max: u64) {
        self.stop(Demand::Discard(max));
    }

    fn stop(&self, demand: Demand) {
        let mut shared = self.shared.lock();
        if matches!(shared.demand, Demand::Nothing | Demand::Frame) {
            shared.demand = demand;
        }
        shared.frame = None;
        // Of a complete body there is nothing to discard.
        let connection = shared.connection.take().filter(|_| shared.state == BodyState::Open);
        drop(shared);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

impl Drop for Http1RequestBody {
    fn drop(&mut self) {
        self.stop(Demand::Stop);
    }
}

impl Body for Http1RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        let this = &mut *self;
        let mut shared = this.shared.lock();
        if let Some(frame) = shared.frame.take() {
            let length = frame.data_ref().map_or(0, Bytes::len) as u64;
            this.remaining = this.remaining.map(|remaining| remaining.saturating_sub(length));
            this.is_over = shared.state == BodyState::Complete;
            return Poll::Ready(Some(Ok(frame)));
        }
        match shared.state {
            BodyState::Complete => {
                this.is_over = true;
                Poll::Ready(None)
            }
            BodyState::Broken => Poll::Ready(Some(Err(BodyFault::Broken))),
            BodyState::Open => {
                shared.demand = Demand::Frame;
                if !shared.receiver.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
                    shared.receiver = Some(context.waker().clone());
                }
                let connection = shared.connection.take();
                drop(shared);
                // If the connection polls this body itself, it looks at the demand afterwards.
                if let Some(connection) = connection.filter(|connection| !connection.will_wake(context.waker())) {
                    connection.wake();
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.remaining == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
