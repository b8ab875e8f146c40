//! How much memory HTTP/2 clients may occupy, for each connection and in all.
//!
//! An HTTP/1 connection has one request at a time, so `bounds.connections` × `bounds.header` bounds them. An HTTP/2 connection has
//! many, and a client chooses how large their heads are and how slowly it takes their answers. For each connection are counted:
//!
//! | what | at most | over it |
//! |---|---|---|
//! | heads of the requests that are not answered yet | [`HEADS`] | the stream is refused (`REFUSED_STREAM`), which clients may retry |
//! | request bodies that have come and nobody has read | [`RECEIVE_WINDOW`] | the client must not send more |
//! | pieces of answers that have not been written | [`QUEUE`] and one [`PIECE`] | no more is read from upstreams |
//!
//! Together these are [`PER_CONNECTION`], unless `bounds.header` allows a longer head, of which there may then be one. What all connections hold counts in [`Total`], by which `bounds.memory` refuses streams.

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

/// The most that one connection may occupy.
pub(in crate::gateway) const PER_CONNECTION: usize = 512 << 10;
/// The flow-control window of a connection, and of each of its streams.
pub(in crate::gateway) const RECEIVE_WINDOW: u32 = 128 << 10;
/// The most that is read of an upstream's answer at once.
pub(in crate::gateway) const PIECE: usize = 16 << 10;
const HEADS: usize = 256 << 10;
const QUEUE: usize = 112 << 10;

const _: () = assert!(HEADS + RECEIVE_WINDOW as usize + QUEUE + PIECE == PER_CONNECTION);

/// What all HTTP/2 connections of the gateway hold.
#[derive(Debug)]
pub(in crate::gateway) struct Total {
    used: AtomicUsize,
    most: usize,
}

impl Total {
    pub(in crate::gateway) fn new(most: usize) -> Self {
        Self { used: AtomicUsize::new(0), most }
    }

    /// Takes memory, if there is so much.
    fn try_take(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// What one connection holds.
#[derive(Debug)]
pub(in crate::gateway) struct Memory {
    total: Arc<Total>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    heads: usize,
    /// How many requests have a body.
    bodies: usize,
    queued: usize,
    /// The streams that wait for room in the queue.
    waiting: Vec<Waker>,
}

/// The memory of one request; given back on drop.
#[derive(Debug)]
pub(in crate::gateway) struct RequestMemory {
    memory: Arc<Memory>,
    head: usize,
    body: Option<BodyMemory>,
}

/// The request has a body.
#[derive(Debug)]
struct BodyMemory;

impl Memory {
    pub(in crate::gateway) fn new(total: Arc<Total>) -> Self {
        Self { total, held: Mutex::default() }
    }

    /// Takes memory for a request with so long a head; `None` if the connection, or all together, hold too much.
    pub(super) fn admit(self: &Arc<Self>, head: usize, has_body: HasBody) -> Option<RequestMemory> {
        let mut held = self.held.lock();
        // One may be as long as `bounds.header` allows, or it could never be sent.
        let is_only = held.heads == 0;
        let heads = held.heads.checked_add(head).filter(|heads| is_only || *heads <= HEADS)?;
        let is_first_body = has_body == HasBody::Yes && held.bodies == 0;
        let window = if is_first_body { RECEIVE_WINDOW as usize } else { 0 };
        if !self.total.try_take(head + window) {
            return None;
        }
        held.heads = heads;
        let body = (has_body == HasBody::Yes).then(|| {
            held.bodies += 1;
            BodyMemory
        });
        Some(RequestMemory { memory: Arc::clone(self), head, body })
    }

    /// Ready when a piece of an answer may be read. The caller must queue it before it returns to the runtime.
    fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut held = self.held.lock();
        if held.queued < QUEUE {
            return Poll::Ready(());
        }
        if !held.waiting.iter().any(|waiting| waiting.will_wake(context.waker())) {
            held.waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    fn queue(&self, bytes: usize) {
        self.held.lock().queued += bytes;
        self.total.take(bytes);
    }

    fn written(&self, bytes: usize) {
        let waiting = {
            let mut held = self.held.lock();
            held.queued -= bytes;
            if held.queued < QUEUE { std::mem::take(&mut held.waiting) } else { Vec::new() }
        };
        self.total.give_back(bytes);
        // Wakers are somebody else's code: never under the lock.
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Whether a request has a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HasBody {
    Yes,
    No,
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        let mut held = self.memory.held.lock();
        held.heads -= self.head;
        let mut bytes = self.head;
        if self.body.take().is_some() {
            held.bodies -= 1;
            if held.bodies == 0 {
                bytes += RECEIVE_WINDOW as usize;
            }
        }
        drop(held);
        self.memory.total.give_back(bytes);
    }
}

/// Where the pieces of a body are counted until they are written.
#[derive(Clone, Debug)]
pub(in crate::gateway) enum Queue {
    /// A client's connection.
    Client(Arc<Memory>),
    /// An upstream's connection. Only clients choose how much they make the gateway keep.
    Upstream,
}

impl Queue {
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Client(memory) => memory.poll_room(context),
            Self::Upstream => Poll::Ready(()),
        }
    }
}

/// A piece of a body on its way out, which counts until it is written.
#[derive(Debug)]
pub(in crate::gateway) struct Piece {
    bytes: Bytes,
    counted: Option<(Arc<Memory>, usize)>,
}

impl Piece {
    pub(super) fn new(bytes: Bytes, queue: &Queue) -> Self {
        let counted = match queue {
            Queue::Client(memory) if !bytes.is_empty() => {
                memory.queue(bytes.len());
                Some((Arc::clone(memory), bytes.len()))
            }
            Queue::Client(_) | Queue::Upstream => None,
        };
        Self { bytes, counted }
    }
}

impl Buf for Piece {
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

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some((memory, length)) = self.counted.take() {
            memory.written(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    fn connection(total: &Arc<Total>) -> Arc<Memory> {
        Arc::new(Memory::new(Arc::clone(total)))
    }

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn heads_are_bounded_for_each_connection_and_given_back() {
        let total = Arc::new(Total::new(usize::MAX));
        let (one, other) = (connection(&total), connection(&total));
        let mut requests: Vec<_> = (0..8).map(|_| one.admit(32 << 10, HasBody::No).unwrap()).collect();
        assert!(one.admit(1, HasBody::No).is_none());
        assert!(one.admit(usize::MAX, HasBody::No).is_none());
        assert!(other.admit(32 << 10, HasBody::No).is_some());
        let long = other.admit(HEADS + 1, HasBody::No).unwrap();
        assert!(other.admit(1, HasBody::No).is_none());
        drop(long);
        requests.pop();
        assert!(one.admit(32 << 10, HasBody::No).is_some());
        drop(requests);
        assert_eq!(total.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_connections_together_are_bounded_and_a_window_counts_once() {
        let window = RECEIVE_WINDOW as usize;
        let total = Arc::new(Total::new(2 * window + 300));
        let connections: Vec<_> = (0..3).map(|_| connection(&total)).collect();
        let first = connections[0].admit(100, HasBody::Yes).unwrap();
        let second = connections[0].admit(100, HasBody::Yes).unwrap();
        let third = connections[1].admit(100, HasBody::Yes).unwrap();
        assert!(connections[2].admit(1, HasBody::No).is_none());
        drop(first);
        assert_eq!(total.used.load(Ordering::Relaxed), 2 * window + 200);
        assert!(connections[2].admit(1, HasBody::Yes).is_none());
        drop((second, third));
        assert_eq!(total.used.load(Ordering::Relaxed), 0);
        assert!(connections[2].admit(1, HasBody::Yes).is_some());
    }

    #[test]
    fn pieces_wait_for_room_until_others_are_written() {
        let total = Arc::new(Total::new(0));
        let memory = connection(&total);
        let queue = Queue::Client(Arc::clone(&memory));
        let (woken, count) = {
            let woken = Arc::new(Woken::default());
            (Waker::from(Arc::clone(&woken)), woken)
        };
        let mut context = Context::from_waker(&woken);
        let mut pieces = Vec::new();
        while queue.poll_room(&mut context).is_ready() {
            pieces.push(Piece::new(Bytes::from(vec![0; PIECE]), &queue));
        }
        assert!(queue.poll_room(&mut context).is_pending());
        assert_eq!(pieces.len() * PIECE, QUEUE);
        assert_eq!(total.used.load(Ordering::Relaxed), QUEUE);
        pieces.pop();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(queue.poll_room(&mut context).is_ready());
        drop(pieces);
        assert_eq!(total.used.load(Ordering::Relaxed), 0);
    }
}
