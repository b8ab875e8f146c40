//! One connection: reads, executes all complete commands, and writes their replies at once.

use super::command_parser::Parser;
use super::commands::{write_outcome, write_result};
use super::reply::ReplyBuffer;
use super::session::{NO_MEMORY, Session, Step};
use super::{Engine, RespState};
use diana::{ClThrottleFuture, Clock, SystemClock};
use diana_net::ReservedMemory;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, Sleep};

/// The least space for a read.
const MIN_READ: usize = 4 << 10;
/// The memory of a connection that does not count: an idle one has no more.
const OWN_MEMORY: usize = 16 << 10;
/// The space for a read of a client that sends much at once.
const MAX_READ: usize = 64 << 10;
/// Replies are sent when they are this long, at the latest.
const MAX_REPLIES: usize = 64 << 10;
/// The calls of one client that wait for the shared store at the same time.
const MAX_PENDING: usize = 256;
/// The time for the replies to a client that sends no more.
const LINGER: Duration = Duration::from_secs(1);
/// The time in which a client that still sends at a stop must read its replies, and close its side.
const LINGER_AT_STOP: Duration = Duration::from_secs(5);
/// `stop` is polled at least once in so many reads, also if each finds bytes.
const READS_BEFORE_STOP: u32 = 32;
/// The bytes of a client that are read after a stop, at most.
const MAX_READ_AFTER_STOP: usize = 1 << 20;

/// Serves a client until it disconnects, is idle for too long, or `stop` completes: then the commands that have arrived
/// are executed first. The caller should set `TCP_NODELAY`.
///
/// # Errors
/// The connection failed, or the client did not read its replies in time.
pub async fn serve<S>(
    stream: S,
    peer: Option<SocketAddr>,
    engine: Engine,
    state: Arc<RespState>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (idle, memory) = (IdleTimer::new(state.idle_timeout), ReservedMemory::none(&state.memory));
    let mut connection = Connection {
        stream,
        session: Session::new(peer, engine, state),
        parser: Parser::default(),
        input: Vec::new(),
        start: 0,
        read_size: MIN_READ,
        reads: 0,
        has_ended: false,
        replies: ReplyBuffer::default(),
        pending: FuturesOrdered::new(),
        idle,
        memory,
    };
    let mut stop = pin!(stop);
    loop {
        match connection.read(stop.as_mut()).await? {
            Received::Bytes => connection.batch().await?,
            Received::End => break,
            Received::Stop => return connection.stop().await,
        }
        if connection.session.is_closing || connection.has_ended {
            break;
        }
    }
    connection.stream.shutdown().await
}

/// The result of a read.
enum Received {
    Bytes,
    /// The client has closed its side, or is idle.
    End,
    /// The server stops.
    Stop,
}

struct Connection<S> {
    stream: S,
    session: Session,
    parser: Parser,
    /// The bytes read; the commands before `start` were executed.
    input: Vec<u8>,
    start: usize,
    read_size: usize,
    /// The reads since `stop` was polled.
    reads: u32,
    /// Whether the client sends no more.
    has_ended: bool,
    replies: ReplyBuffer,
    /// Calls whose answers are written next, in this order.
    pending: FuturesOrdered<ClThrottleFuture>,
    idle: IdleTimer,
    /// Counts the buffers, over [`OWN_MEMORY`].
    memory: ReservedMemory,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection<S> {
    /// Waits for the client.
    async fn read(&mut self, mut stop: Pin<&mut (impl Future<Output = ()> + Send)>) -> io::Result<Received> {
        if !self.reserve_input(self.read_size) {
            self.drain().await;
            self.replies.error(NO_MEMORY);
            self.write().await?;
            return Ok(Received::End);
        }
        // A client that sends without pause must not hold up a stop.
        self.reads += 1;
        if self.reads >= READS_BEFORE_STOP {
            self.reads = 0;
            if poll_once(stop.as_mut()).await.is_ready() {
                return Ok(Received::Stop);
            }
        }
        loop {
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => {
                    let count = read?;
                    if count == 0 {
                        return Ok(Received::End);
                    }
                    self.idle.is_active = true;
                    self.adapt(count);
                    return Ok(Received::Bytes);
                }
                () = stop.as_mut() => return Ok(Received::Stop),
                () = self.idle.sleep.as_mut() => {
                    if self.idle.has_expired() {
                        return Ok(Received::End);
                    }
                }
            }
        }
    }

    /// Makes room for a read. Returns `false` if the memory of all clients is used up.
    #[inline]
    fn reserve_input(&mut self, size: usize) -> bool {
        let needed = (self.input.len() + size).max(self.input.capacity());
        let buffers = needed + self.replies.capacity() + self.parser.memory();
        let is_left = self.memory.resize(buffers.saturating_sub(OWN_MEMORY));
        if is_left {
            self.input.reserve_exact(size);
        }
        is_left
    }

    /// Executes the commands that have arrived before a stop, and closes the connection.
    async fn stop(&mut self) -> io::Result<()> {
        let mut rest = MAX_READ_AFTER_STOP;
        let mut is_sending = true;
        while rest > 0 {
            self.input.reserve(self.read_size);
            // Reads find nothing once the task has used up its share of the thread, so it starts with a new one.
            tokio::task::yield_now().await;
            let read = poll_once(pin!(self.stream.read_buf(&mut self.input))).await;
            let Poll::Ready(count) = read else {
                is_sending = self.start < self.input.len();
                break;
            };
            let count = count?;
            self.has_ended |= count == 0;
            if count > 0 {
                self.batch().await?;
            }
            if self.session.is_closing || self.has_ended {
                is_sending = false;
                break;
            }
            rest = rest.saturating_sub(count);
        }
        self.stream.shutdown().await?;
        if is_sending {
            // A connection that is closed with unread bytes is reset, and the client may lose its last replies.
            let _ = tokio::time::timeout(LINGER_AT_STOP, self.discard()).await;
        }
        Ok(())
    }

    /// Reads until the client has closed its side.
    async fn discard(&mut self) {
        loop {
            self.input.clear();
            self.input.reserve(MIN_READ);
            if !matches!(self.stream.read_buf(&mut self.input).await, Ok(1..)) {
                return;
            }
        }
    }

    /// Executes all complete commands, and writes their replies.
    async fn batch(&mut self) -> io::Result<()> {
        let start = SystemClock.now();
        loop {
            if self.parser.is_at_start() && self.pending.is_empty() {
                let available = self.input.get(self.start..).unwrap_or_default();
                self.start += self.session.repeat_cl_throttle(available, &mut self.replies, MAX_REPLIES);
                if self.replies.len() >= MAX_REPLIES {
                    self.write().await?;
                }
            }
            let available = self.input.get(self.start..).unwrap_or_default();
            let mark = self.replies.len();
            let (length, step) = match self.parser.parse(available, self.session.bounds()) {
                Ok(None) => break,
                Ok(Some(length)) => {
                    let command = self.parser.command(available);
                    let is_empty = command.len() == 0;
                    (length, if is_empty { Step::Done } else { self.session.execute(command, &mut self.replies) })
                }
                Err(error) => {
                    self.drain().await;
                    self.replies.error(&format!("ERR Protocol error: {error}"));
                    self.session.is_closing = true;
                    break;
                }
            };
            self.start += length;
            if !(matches!(step, Step::Done) && self.pending.is_empty()) {
                self.go_on(step, mark).await?;
            }
            if self.session.is_closing {
                break;
            }
            if self.replies.len() >= MAX_REPLIES {
                self.write().await?;
            }
        }
        self.drain().await;
        self.session.record(&mut self.replies, start);
        self.input.drain(..self.start);
        self.start = 0;
        if self.input.capacity() > self.read_size * 4 {
            self.input.shrink_to(self.read_size * 2);
        }
        self.write().await
    }

    /// Gives a client that sends much at once more space, and takes it back when it sends little. One that has not given
    /// the password gets no more.
    #[inline]
    fn adapt(&mut self, count: usize) {
        if count >= self.read_size && self.session.is_authenticated {
            self.read_size = (self.read_size * 4).min(MAX_READ);
        } else if count < self.read_size / 8 {
            self.read_size = (self.read_size / 2).max(MIN_READ);
        }
    }

    /// Goes on with a command whose reply, if it is written, starts at `mark`.
    async fn go_on(&mut self, step: Step, mark: usize) -> io::Result<()> {
        if let Step::ClThrottle(future) = step {
            self.pending.push_back(future);
            if self.pending.len() >= MAX_PENDING {
                self.drain().await;
            }
            return Ok(());
        }
        if !self.pending.is_empty() {
            // The answers of earlier commands come first.
            let written = self.replies.split_off(mark);
            self.drain().await;
            self.replies.append(&written);
        }
        match step {
            Step::Done | Step::ClThrottle(_) => {}
            Step::Check(future, form) => {
                let result = self.attend(future).await?;
                write_result(&result, form, &mut self.replies);
            }
            Step::Later(future) => {
                let outcome = self.attend(future).await?;
                write_outcome(outcome, &mut self.replies);
            }
            Step::Exec(transaction) => {
                self.replies.array(transaction.len());
                for index in 0..transaction.len() {
                    let mark = self.replies.len();
                    let step = self.session.execute_queued(transaction.command(index), &mut self.replies);
                    if !(matches!(step, Step::Done) && self.pending.is_empty()) {
                        // A transaction contains no other transaction, so this goes one level deep.
                        Box::pin(self.go_on(step, mark)).await?;
                    }
                    if self.replies.len() >= MAX_REPLIES {
                        self.write().await?;
                    }
                }
                self.drain().await;
            }
        }
        Ok(())
    }

    /// Writes the answers of all pending calls to the replies.
    async fn drain(&mut self) {
        while let Some(answer) = self.pending.next().await {
            self.replies.cl_throttle(&answer);
        }
    }

    /// Waits for a decision, as long as the client is connected: a client that has left is not queued any more.
    async fn attend<T>(&mut self, decision: impl Future<Output = T> + Send) -> io::Result<T> {
        // Replies to earlier commands do not wait for it.
        let mut decision = pin!(decision);
        if let Poll::Ready(result) = poll_once(decision.as_mut()).await {
            return Ok(result);
        }
        self.write().await?;
        loop {
            if self.has_ended {
                let late = || io::Error::new(io::ErrorKind::ConnectionAborted, "the client did not wait");
                return tokio::time::timeout(LINGER, decision).await.map_err(|_| late());
            }
            // No more is read than one read may have.
            if self.input.len() - self.start >= MAX_READ {
                return Ok(decision.await);
            }
            if !self.reserve_input(MIN_READ) {
                return Ok(decision.await);
            }
            tokio::select! {
                biased;
                result = decision.as_mut() => return Ok(result),
                read = self.stream.read_buf(&mut self.input) => self.has_ended = read? == 0,
            }
        }
    }

    /// Sends the replies so far.
    async fn write(&mut self) -> io::Result<()> {
        if self.replies.len() == 0 {
            return Ok(());
        }
        let mut write = pin!(self.stream.write_all(self.replies.as_bytes()));
        match poll_once(write.as_mut()).await {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                // A client that does not read must not keep what has no room.
                let buffers = self.input.capacity() + self.replies.capacity();
                if !self.memory.resize(buffers.saturating_sub(OWN_MEMORY)) {
                    return Err(io::Error::new(io::ErrorKind::OutOfMemory, NO_MEMORY));
                }
                tokio::time::timeout(self.idle.period, write).await??;
            }
        }
        self.replies.clear(self.read_size * 4);
        Ok(())
    }
}

/// Polls a future once.
async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Detects idle clients without reading the time for each command: it expires if a whole period passes without one.
#[derive(Debug)]
struct IdleTimer {
    sleep: Pin<Box<Sleep>>,
    period: Duration,
    is_active: bool,
}

impl IdleTimer {
    fn new(period: Duration) -> Self {
        Self { sleep: Box::pin(tokio::time::sleep(period)), period, is_active: false }
    }

    /// Starts another period if there was a command in the last one; called when the timer has fired.
    fn has_expired(&mut self) -> bool {
        self.sleep.as_mut().reset(Instant::now() + self.period);
        !std::mem::take(&mut self.is_active)
    }
}
