//! Sends a body over an HTTP/2 stream, as fast as the peer accepts it.
//!
//! A chunk is read first and sent when there is window for it, so that the end of a body and its trailers, which need
//! no window, are never delayed. h2 gets no more than the window allows. The rest of a chunk is stored in the [`Pipe`],
//! one chunk for each stream.

use super::interim::StreamHandle;
use super::memory::{CHUNK_SIZE, MIN_READ, Memory, SendChunk};
use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;

/// Sends a body over a stream.
pub struct Pipe {
    queue: Queue,
    /// The chunk that has been read but not sent.
    pending: Option<SendChunk>,
    /// Room in the queue for a part of it.
    permit: Option<OwnedSemaphorePermit>,
    waiting: Option<Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>>>,
    /// The number of bytes sent.
    sent: u64,
    is_stalled: bool,
}

/// The counter of the chunks of a body until they are written.
enum Queue {
    /// A client's connection, and its stream, which sets the read size of the upstream side.
    Client(Arc<Memory>, StreamHandle),
    /// An upstream's connection. Only clients control how much the gateway buffers.
    Upstream,
}

/// The reason why a body was not sent completely.
#[derive(Debug)]
pub enum PipeError<E> {
    /// The stream was reset, or its connection was closed.
    Reset,
    /// The body was aborted. The stream is reset.
    Body(E),
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("sent", &self.sent).finish_non_exhaustive()
    }
}

impl Pipe {
    pub(crate) fn to_client(memory: Arc<Memory>, handle: StreamHandle) -> Self {
        Self::new(Queue::Client(memory, handle))
    }

    /// Creates a pipe to an upstream.
    pub fn to_upstream() -> Self {
        Self::new(Queue::Upstream)
    }

    fn new(queue: Queue) -> Self {
        Self { queue, pending: None, permit: None, waiting: None, sent: 0, is_stalled: false }
    }

    /// Returns the number of bytes sent, if the peer grants no window for more.
    pub(crate) fn stalled(&self) -> Option<u64> {
        self.is_stalled.then_some(self.sent)
    }

    /// Sends the available part of a body. Ready when all of it is queued.
    pub fn poll<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        body: &mut B,
        stream: &mut SendStream<SendChunk>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), PipeError<B::Error>>> {
        let polled = self.poll_all(body, stream, context);
        if polled.is_pending() && self.pending.is_none() {
            // Other streams share the connection's window and the queue.
            stream.reserve_capacity(0);
            self.permit = None;
        }
        polled
    }

    fn poll_all<B: Body<Data = Bytes> + Unpin>(
        &mut self,
        body: &mut B,
        stream: &mut SendStream<SendChunk>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), PipeError<B::Error>>> {
        loop {
            self.is_stalled = false;
            if stream.poll_reset(context).is_ready() {
                return Poll::Ready(Err(PipeError::Reset));
            }
            if self.pending.is_some() {
                let is_over = ready!(self.poll_send(|| body.is_end_stream(), stream, context));
                match is_over {
                    Ok(true) => return Poll::Ready(Ok(())),
                    Ok(false) => continue,
                    Err(_) => return Poll::Ready(Err(reset(stream))),
                }
            }
            ready!(self.poll_room(stream, context));
            let frame = match ready!(Pin::new(&mut *body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    stream.send_reset(Reason::INTERNAL_ERROR);
                    return Poll::Ready(Err(PipeError::Body(error)));
                }
                None => {
                    let sent = stream.send_data(SendChunk::default(), true);
                    return Poll::Ready(sent.map_err(|_| reset(stream)));
                }
            };
            match frame.into_data() {
                Ok(data) if !data.is_empty() => self.pending = Some(self.queue.chunk(data)),
                // An empty frame; the end follows.
                Ok(_) => {}
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        stream.reserve_capacity(0);
                        return Poll::Ready(stream.send_trailers(trailers).map_err(|_| reset(stream)));
                    }
                }
            }
        }
    }

    /// Waits for room in the queue for as much as the window allows, and sets the read size to that. Without window,
    /// the read size is the share that every stream has.
    fn poll_room(&mut self, stream: &mut SendStream<SendChunk>, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.queue, Queue::Upstream) {
            return Poll::Ready(());
        }
        stream.reserve_capacity(CHUNK_SIZE);
        let mut max = stream.capacity().min(CHUNK_SIZE);
        if max > 0 {
            max = ready!(self.poll_permit(max, context));
        } else {
            self.release_room();
        }
        if let Queue::Client(_, handle) = &self.queue {
            handle.set_read_size(max.max(MIN_READ));
        }
        Poll::Ready(())
    }

    /// Waits for room in the queue. Returns how many of the bytes fit.
    fn poll_permit(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<usize> {
        let Queue::Client(memory, _) = &self.queue else { return Poll::Ready(bytes) };
        if self.permit.is_none() && self.waiting.is_none() {
            self.permit = memory.try_permit(bytes);
        }
        if self.permit.is_none() {
            let waiting = self.waiting.get_or_insert_with(|| memory.permit(bytes));
            self.permit = ready!(waiting.as_mut().poll(context));
            self.waiting = None;
        }
        Poll::Ready(self.permit.as_ref().map_or(bytes, |permit| permit.num_permits().min(bytes)))
    }

    /// Releases the room in the queue, so that other streams can use it while this one has no window.
    fn release_room(&mut self) {
        (self.permit, self.waiting) = (None, None);
    }

    /// Sends as much of the pending chunk as window and room allow. Returns `true` if that was the end of the body.
    fn poll_send(
        &mut self,
        is_end: impl Fn() -> bool,
        stream: &mut SendStream<SendChunk>,
        context: &mut Context<'_>,
    ) -> Poll<Result<bool, h2::Error>> {
        let Some(length) = self.pending.as_ref().map(SendChunk::len) else { return Poll::Ready(Ok(false)) };
        stream.reserve_capacity(length);
        while stream.capacity() == 0 {
            self.release_room();
            self.is_stalled = true;
            match ready!(stream.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            }
        }
        self.is_stalled = false;
        let length = ready!(self.poll_permit(length.min(stream.capacity()), context));
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(false)) };
        let chunk = pending.split_to(length, self.permit.take());
        if pending.is_empty() {
            self.pending = None;
        }
        self.sent += length as u64;
        let is_over = self.pending.is_none() && is_end();
        stream.send_data(chunk, is_over)?;
        Poll::Ready(Ok(is_over))
    }
}

impl Queue {
    fn chunk(&self, data: Bytes) -> SendChunk {
        match self {
            Self::Client(memory, _) => memory.chunk(data),
            Self::Upstream => SendChunk::from(data),
        }
    }
}

/// Resets a stream that can't be sent to, so that it does not stay open forever. (A stream that the peer has reset is
/// closed already.)
fn reset<E>(stream: &mut SendStream<SendChunk>) -> PipeError<E> {
    stream.send_reset(Reason::INTERNAL_ERROR);
    PipeError::Reset
}
