//! The pool of HTTP/2 connections to an upstream: a task drives each of them for many requests, and the pool grows when
//! all are in use.
//!
//! # How it grows
//! The upstream limits the number of concurrent streams of a connection. A request uses the first connection with a
//! free stream. If there is none, another connection is opened, up to [`MAX_CONNECTIONS`] for each worker. Requests
//! that arrive meanwhile wait for it; a further connection is opened only if that one will not have enough streams for
//! them. At the maximum, a request waits for a free stream as long as it would for a connection.

use crate::upstream::connector::UpstreamIo;
use crate::upstream::{UpstreamError, WireError};
use diana_net::http2_codec::SendChunk;
use h2::client::{Builder, Connection, SendRequest};
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// The maximum number of connections from a worker to one upstream, and of streams on each.
const MAX_CONNECTIONS: usize = 32;
const MAX_STREAMS: usize = 100;
/// The size of a response that may arrive before the client reads it. The connection's window covers all its streams, so
/// that a client that does not read can't block the others.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;
const _: () = assert!(MAX_STREAMS == 100);
/// The maximum size of a response's head.
const MAX_HEAD: u32 = 64 << 10;
/// The interval of keep-alive pings, and the timeout for the ack.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

/// The connections to one upstream.
#[derive(Default)]
pub(in crate::upstream) struct Pool {
    state: Mutex<PoolState>,
    /// Notified when a stream is free, or a connection has been opened or has failed.
    changed: Arc<Notify>,
    /// Whether the upstream is known to use HTTP/2: then many requests share a connection.
    is_known: AtomicBool,
}

#[derive(Default)]
struct PoolState {
    connections: Vec<PooledConnection>,
    /// The number of connections being opened, and of requests that wait for them.
    connecting: usize,
    waiting: usize,
}

/// A connection.
struct PooledConnection {
    sender: SendRequest<SendChunk>,
    shared: Arc<ConnState>,
    /// The time of the connection's last use, on the worker's clock.
    last_used: u64,
}

struct ConnState {
    in_use: AtomicUsize,
    is_closed: AtomicBool,
    changed: Arc<Notify>,
}

/// A free stream of a connection, for one request. Dropping it frees the stream.
pub(in crate::upstream) struct Slot {
    pub(super) sender: SendRequest<SendChunk>,
    shared: Arc<ConnState>,
}

/// The next step of a request without a stream.
pub(in crate::upstream) enum Checkout {
    /// The request uses this stream.
    Ready(Slot),
    /// The request opens a connection.
    Connect(Connecting),
    /// The request waits.
    Wait,
}

/// A connection that is being opened.
pub(in crate::upstream) struct Connecting(Arc<Pool>);

impl Pool {
    /// Returns `true` if the upstream is known to use HTTP/2.
    pub(in crate::upstream) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    pub(in crate::upstream) fn set_known(&self) {
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// Returns a free stream, if there is one.
    pub(in crate::upstream) fn idle(&self, now: u64) -> Option<Slot> {
        let mut state = self.state.lock();
        state.connections.retain_mut(PooledConnection::is_open);
        state.connections.iter_mut().find_map(|connection| connection.slot(now))
    }

    /// Returns a free stream, or the next step to get one.
    fn checkout(self: &Arc<Self>, now: u64) -> Checkout {
        if let Some(slot) = self.idle(now) {
            return Checkout::Ready(slot);
        }
        let mut state = self.state.lock();
        let streams = state.connections.last().map_or(MAX_STREAMS, PooledConnection::max_streams);
        // The request that opens a connection uses one of its streams; the others are for the waiting requests.
        let is_enough = state.waiting < state.connecting.saturating_mul(streams.saturating_sub(1));
        if is_enough || state.connections.len() + state.connecting >= MAX_CONNECTIONS {
            return Checkout::Wait;
        }
        state.connecting += 1;
        Checkout::Connect(Connecting(Arc::clone(self)))
    }

    /// Waits for a free stream, or for the turn to open a connection.
    pub(in crate::upstream) async fn wait(
        self: &Arc<Self>,
        now: impl Fn() -> u64,
        timeout: Duration,
    ) -> Result<Checkout, UpstreamError> {
        let waiting = async {
            loop {
                // Registered before the check, so that no notification is missed.
                let changed = self.changed.notified();
                match self.checkout(now()) {
                    Checkout::Wait => {
                        let _waiting = Waiting::new(self);
                        changed.await;
                    }
                    checkout => return checkout,
                }
            }
        };
        let waited = tokio::time::timeout(timeout, waiting).await;
        // Without any connection, the upstream is too slow to connect.
        waited.map_err(|_| {
            if self.state.lock().connections.is_empty() { UpstreamError::TimedOut } else { UpstreamError::Busy }
        })
    }

    /// Adds a connection, and returns its first stream.
    pub(in crate::upstream) async fn add(
        &self,
        io: UpstreamIo,
        timeout: Duration,
        now: u64,
    ) -> Result<Slot, UpstreamError> {
        let opened = tokio::time::timeout(timeout, handshake(io, Arc::clone(&self.changed))).await;
        let mut connection = opened.map_err(|_| UpstreamError::TimedOut)??;
        let slot = connection.slot(now);
        self.set_known();
        let mut state = self.state.lock();
        // Before the protocol was known, each request opened a connection. Those over the limit close after their
        // request.
        if state.connections.len() < MAX_CONNECTIONS {
            state.connections.push(connection);
        }
        drop(state);
        self.changed.notify_waiters();
        slot.ok_or(UpstreamError::Busy)
    }

    /// Closes connections that have been idle for too long, except one.
    pub(in crate::upstream) fn close_idle(&self, now: u64, max_idle: u64) {
        let mut state = self.state.lock();
        let mut count = 0;
        state.connections.retain_mut(|connection| {
            count += 1;
            let is_idle = connection.shared.in_use.load(Ordering::Relaxed) == 0
                && now.saturating_sub(connection.last_used) > max_idle;
            connection.is_open() && (count == 1 || !is_idle)
        });
    }
}

/// Counts a waiting request.
struct Waiting<'a>(&'a Pool);

impl<'a> Waiting<'a> {
    fn new(pool: &'a Pool) -> Self {
        pool.state.lock().waiting += 1;
        Self(pool)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.state.lock().connecting -= 1;
        // If opening failed, another request tries.
        self.0.changed.notify_waiters();
    }
}

impl PooledConnection {
    /// Returns `true` if the connection accepts new streams. After GOAWAY it does not, although streams may still be
    /// active.
    fn is_open(&mut self) -> bool {
        let is_ready = self.sender.poll_ready(&mut Context::from_waker(Waker::noop()));
        !self.shared.is_closed.load(Ordering::Relaxed) && !matches!(is_ready, Poll::Ready(Err(_)))
    }

    fn max_streams(&self) -> usize {
        self.sender.current_max_send_streams().min(MAX_STREAMS)
    }

    fn slot(&mut self, now: u64) -> Option<Slot> {
        if self.shared.in_use.load(Ordering::Relaxed) >= self.max_streams() {
            return None;
        }
        self.shared.in_use.fetch_add(1, Ordering::Relaxed);
        self.last_used = now;
        Some(Slot { sender: self.sender.clone(), shared: Arc::clone(&self.shared) })
    }
}

impl Slot {
    /// Excludes the connection from further requests: the upstream did not respond.
    pub(in crate::upstream) fn retire(&self) {
        self.shared.is_closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.in_use.fetch_sub(1, Ordering::Relaxed);
        self.shared.changed.notify_one();
    }
}

/// Opens a connection. Ready when the upstream has sent its stream limit.
async fn handshake(io: UpstreamIo, changed: Arc<Notify>) -> Result<PooledConnection, UpstreamError> {
    let broken = |error| UpstreamError::Broken(WireError::Http2(error));
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEAD)
        .enable_push(false)
        // Opens no streams before the upstream has sent its limit.
        .initial_max_send_streams(0)
        .handshake(io)
        .await;
    let (sender, mut connection) = handshake.map_err(broken)?;
    let pings = connection.ping_pong();
    poll_fn(|context| match Pin::new(&mut connection).poll(context) {
        Poll::Ready(Ok(())) => Poll::Ready(Err(UpstreamError::Broken(WireError::Closed))),
        Poll::Ready(Err(error)) => Poll::Ready(Err(broken(error))),
        Poll::Pending if connection.max_concurrent_send_streams() > 0 => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await?;
    let shared = ConnState { in_use: AtomicUsize::new(0), is_closed: AtomicBool::new(false), changed };
    let shared = Arc::new(shared);
    tokio::spawn(drive(connection, pings, Arc::clone(&shared)));
    Ok(PooledConnection { sender, shared, last_used: 0 })
}

/// Drives a connection until it ends, or a ping gets no ack: an unresponsive connection must not be used forever.
async fn drive(mut connection: Connection<UpstreamIo, SendChunk>, pings: Option<PingPong>, shared: Arc<ConnState>) {
    let mut streams = connection.max_concurrent_send_streams();
    let driven = poll_fn(|context| {
        let driven = Pin::new(&mut connection).poll(context);
        let now = connection.max_concurrent_send_streams();
        if std::mem::replace(&mut streams, now) < now {
            // The upstream raised its stream limit.
            shared.changed.notify_waiters();
        }
        driven
    });
    let silent = async {
        let Some(mut pings) = pings else { return std::future::pending().await };
        loop {
            tokio::time::sleep(PING).await;
            if !matches!(tokio::time::timeout(PONG, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
                return;
            }
        }
    };
    tokio::select! {
        ended = driven => {
            if let Err(error) = ended {
                tracing::debug!("an HTTP/2 connection to an upstream failed: {error}");
            }
        }
        () = silent => tracing::debug!("an HTTP/2 connection to an upstream timed out: no PING ack"),
    }
    shared.is_closed.store(true, Ordering::Relaxed);
    shared.changed.notify_waiters();
}
