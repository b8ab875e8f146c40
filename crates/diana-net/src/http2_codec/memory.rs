//! Limits the memory that HTTP/2 clients may use, for each connection and in total.
//!
//! An HTTP/1 connection has one request at a time, so `bounds.connections` × `bounds.header` bounds their memory. An
//! HTTP/2 connection has many, and the client chooses how large their heads are and how slowly it reads the responses.
//! For each connection, the server counts:
//!
//! | memory | limit | if exceeded |
//! |---|---|---|
//! | heads of the requests without a response yet | [`MAX_HEADS`] | the stream is refused (`REFUSED_STREAM`), which clients may retry |
//! | their trailers that wait after a body | the same | the stream is reset (`ENHANCE_YOUR_CALM`) |
//! | request body data that has not been read yet | [`RECEIVE_WINDOW`] | the client must not send more |
//! | response data that has not been written yet | [`SEND_QUEUE`] | streams wait for room, in their order |
//! | response data for which the client grants no window | [`MIN_READ`] for each stream | no more is read from the upstream |
//!
//! The last row keeps a stream that the client does not read from blocking the others. The total is [`PER_CONNECTION`]
//! plus [`MIN_READ`] for each stream, unless `bounds.header` allows a longer head, of which there may then be one.
//! [`TotalMemory`] counts the memory of all connections and refuses streams over `bounds.memory`.

use crate::TotalMemory;
use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The memory limit of one connection.
pub(crate) const PER_CONNECTION: usize = 512 << 10;
/// The flow-control window of a connection, and of each of its streams.
pub(crate) const RECEIVE_WINDOW: u32 = 128 << 10;
/// The maximum number of bytes of an upstream's response that are read at once.
pub(crate) const CHUNK_SIZE: usize = 16 << 10;
/// The number of bytes of a response that a stream may always read, whatever the others use.
pub const MIN_READ: usize = 4 << 10;
const MAX_HEADS: usize = 256 << 10;
pub(crate) const SEND_QUEUE: u32 = 128 << 10;

const _: () = assert!(MAX_HEADS + RECEIVE_WINDOW as usize + SEND_QUEUE as usize == PER_CONNECTION);

/// The memory that one connection uses.
#[derive(Debug)]
pub(crate) struct Memory {
    total: Arc<TotalMemory>,
    usage: Mutex<Usage>,
    /// One permit for each byte. Streams get them in FIFO order.
    queue: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Usage {
    heads: usize,
    /// The number of requests with a body.
    bodies: usize,
}

/// The memory of one request; released on drop.
#[derive(Debug)]
pub(crate) struct RequestMemory {
    memory: Arc<Memory>,
    head: usize,
    body: Option<BodyMemory>,
}

/// Marks a request with a body.
#[derive(Debug)]
struct BodyMemory;

impl Memory {
    pub(crate) fn new(total: Arc<TotalMemory>) -> Self {
        Self { total, usage: Mutex::default(), queue: Arc::new(Semaphore::new(SEND_QUEUE as usize)) }
    }

    /// Reserves memory for a request. Returns `None` if the connection, or all together, would exceed the limit.
    pub(crate) fn admit(self: &Arc<Self>, head: usize, has_body: HasBody) -> Option<RequestMemory> {
        let mut usage = self.usage.lock();
        // A single head may be as long as `bounds.header` allows, or it could never be sent.
        let is_only = usage.heads == 0;
        let heads = usage.heads.checked_add(head).filter(|heads| is_only || *heads <= MAX_HEADS)?;
        let is_first_body = has_body == HasBody::Yes && usage.bodies == 0;
        let window = if is_first_body { RECEIVE_WINDOW as usize } else { 0 };
        if !self.total.try_add(head + window) {
            return None;
        }
        usage.heads = heads;
        let body = (has_body == HasBody::Yes).then(|| {
            usage.bodies += 1;
            BodyMemory
        });
        Some(RequestMemory { memory: Arc::clone(self), head, body })
    }

    /// Returns room in the queue, if it is available and no stream waits for it.
    pub(crate) fn try_permit(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queue).try_acquire_many_owned(permits(bytes)).ok()
    }

    /// Waits for room in the queue.
    pub(crate) fn permit(&self, bytes: usize) -> Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send>> {
        let permit = Arc::clone(&self.queue).acquire_many_owned(permits(bytes));
        Box::pin(async { permit.await.ok() })
    }

    /// Returns a chunk of a response, which counts until it is written.
    pub(crate) fn chunk(&self, bytes: Bytes) -> SendChunk {
        self.total.add(bytes.len());
        SendChunk { reserved: Some((Arc::clone(&self.total), bytes.len())), bytes, _permit: None }
    }
}

/// Converts to a number of permits, at most the queue's size.
fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(SEND_QUEUE).min(SEND_QUEUE)
}

impl RequestMemory {
    /// Reserves memory for the request's trailers, if the limits of the connection and of all together allow it.
    pub(crate) fn admit_trailers(&mut self, bytes: usize) -> bool {
        let mut usage = self.memory.usage.lock();
        let Some(heads) = usage.heads.checked_add(bytes).filter(|heads| *heads <= MAX_HEADS) else { return false };
        let is_admitted = self.memory.total.try_add(bytes);
        if is_admitted {
            usage.heads = heads;
            self.head += bytes;
        }
        is_admitted
    }
}

/// Whether a request has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasBody {
    Yes,
    No,
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        let mut usage = self.memory.usage.lock();
        usage.heads -= self.head;
        let mut bytes = self.head;
        if self.body.take().is_some() {
            usage.bodies -= 1;
            if usage.bodies == 0 {
                bytes += RECEIVE_WINDOW as usize;
            }
        }
        drop(usage);
        self.memory.total.subtract(bytes);
    }
}

/// A chunk of a body that is being sent.
#[derive(Debug, Default)]
pub struct SendChunk {
    bytes: Bytes,
    reserved: Option<(Arc<TotalMemory>, usize)>,
    /// The chunk's room in the queue.
    _permit: Option<OwnedSemaphorePermit>,
}

impl SendChunk {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Splits off the first bytes, with their room in the queue. The excess of the permit is released.
    pub(crate) fn split_to(&mut self, length: usize, mut permit: Option<OwnedSemaphorePermit>) -> Self {
        let reserved = self.reserved.as_mut().map(|(total, reserved)| {
            *reserved -= length;
            (Arc::clone(total), length)
        });
        let _permit = permit.as_mut().and_then(|permit| permit.split(length));
        Self { bytes: self.bytes.split_to(length), reserved, _permit }
    }
}

/// Creates a chunk that is not counted.
impl From<Bytes> for SendChunk {
    fn from(bytes: Bytes) -> Self {
        Self { bytes, reserved: None, _permit: None }
    }
}

impl Buf for SendChunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, length: usize) {
        self.bytes.advance(length);
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.bytes.chunks_vectored(slices)
    }
}

impl Drop for SendChunk {
    fn drop(&mut self) {
        if let Some((total, length)) = self.reserved.take() {
            total.subtract(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    /// Polls a future once.
    fn poll<T>(future: &mut Pin<Box<dyn Future<Output = T> + Send>>) -> Option<T> {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn connection(total: &Arc<TotalMemory>) -> Arc<Memory> {
        Arc::new(Memory::new(Arc::clone(total)))
    }

    #[test]
    fn heads_are_bounded_for_each_connection_and_released() {
        let total = Arc::new(TotalMemory::new(usize::MAX));
        let (one, other) = (connection(&total), connection(&total));
        let mut requests: Vec<_> = (0..8).map(|_| one.admit(32 << 10, HasBody::No).unwrap()).collect();
        assert!(one.admit(1, HasBody::No).is_none());
        assert!(one.admit(usize::MAX, HasBody::No).is_none());
        assert!(other.admit(32 << 10, HasBody::No).is_some());
        let long = other.admit(MAX_HEADS + 1, HasBody::No).unwrap();
        assert!(other.admit(1, HasBody::No).is_none());
        drop(long);
        requests.pop();
        assert!(one.admit(32 << 10, HasBody::No).is_some());
        drop(requests);
        assert_eq!(total.used(), 0);
    }

    #[test]
    fn the_total_is_bounded_and_a_window_counts_once() {
        let window = RECEIVE_WINDOW as usize;
        let total = Arc::new(TotalMemory::new(2 * window + 300));
        let connections: Vec<_> = (0..3).map(|_| connection(&total)).collect();
        let first = connections[0].admit(100, HasBody::Yes).unwrap();
        let second = connections[0].admit(100, HasBody::Yes).unwrap();
        let third = connections[1].admit(100, HasBody::Yes).unwrap();
        assert!(connections[2].admit(1, HasBody::No).is_none());
        drop(first);
        assert_eq!(total.used(), 2 * window + 200);
        assert!(connections[2].admit(1, HasBody::Yes).is_none());
        drop((second, third));
        assert_eq!(total.used(), 0);
        assert!(connections[2].admit(1, HasBody::Yes).is_some());
    }

    #[test]
    fn trailers_count_like_heads() {
        let total = Arc::new(TotalMemory::new(usize::MAX));
        let memory = connection(&total);
        let mut requests: Vec<_> = (0..9).map(|_| memory.admit(100, HasBody::Yes).unwrap()).collect();
        let admitted = requests.iter_mut().filter_map(|request| request.admit_trailers(32 << 10).then_some(()));
        assert_eq!(admitted.count(), 7);
        assert!(memory.admit(32 << 10, HasBody::No).is_none());
        drop(requests);
        assert_eq!(total.used(), 0);
    }

    #[test]
    fn streams_wait_for_room_in_fifo_order_and_release_it() {
        let total = Arc::new(TotalMemory::new(0));
        let memory = connection(&total);
        let mut queued = Vec::new();
        while let Some(permit) = memory.try_permit(CHUNK_SIZE) {
            let mut chunk = memory.chunk(Bytes::from(vec![0; CHUNK_SIZE + 1]));
            queued.push(chunk.split_to(CHUNK_SIZE, Some(permit)));
            assert_eq!(chunk.len(), 1);
        }
        assert_eq!(queued.len() * CHUNK_SIZE, SEND_QUEUE as usize);
        assert_eq!(total.used(), SEND_QUEUE as usize);
        let mut waiting: Vec<_> = (0..3).map(|_| memory.permit(CHUNK_SIZE)).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_none()));
        drop(waiting.remove(0));
        queued.pop();
        assert!(memory.try_permit(1).is_none());
        assert!(poll(&mut waiting[1]).is_none());
        assert!(poll(&mut waiting[0]).flatten().is_some());
        drop((queued, waiting));
        assert_eq!((total.used(), memory.queue.available_permits()), (0, SEND_QUEUE as usize));
    }
}
