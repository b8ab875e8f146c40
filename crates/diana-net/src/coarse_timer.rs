//! Timeouts that cost almost nothing unless they expire.
//!
//! A timer for each phase of each request would be set and reset all the time, and almost never fire. Instead, a phase
//! only stores when it is due; a task scans the list ten times a second and wakes the overdue entries. So a timeout
//! fires up to [`TICK`] late, and never early.
//!
//! A thread of its own wakes the tasks of all workers ([`Ticker`]). With a tokio timer in each worker, every
//! `epoll_wait` would have to read the clock and search the timer wheel for its timeout.

use diana_core::{Clock, SystemClock, Timestamp};
use parking_lot::Mutex;
use slab::Slab;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// The interval of the scans of the list.
const TICK: Duration = Duration::from_millis(100);
/// The due time of a deadline that is not set.
const NEVER: u64 = u64::MAX;

/// The start time of a server: all its workers count from this instant.
#[derive(Clone, Copy, Debug)]
pub struct StartTime(Timestamp);

/// The thread that wakes every worker once per [`TICK`]. Dropping it ends the thread.
#[derive(Debug)]
pub struct Ticker {
    ticks: watch::Receiver<()>,
    /// Dropped to end the thread.
    alive: Option<mpsc::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// The deadlines of one worker.
#[derive(Debug)]
pub struct Deadlines {
    start: StartTime,
    /// Milliseconds since the server started, as of the last scan.
    now: AtomicU64,
    stopping: AtomicBool,
    list: Mutex<Slab<Arc<DeadlineEntry>>>,
}

#[derive(Debug)]
struct DeadlineEntry {
    due: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// One deadline, which its owner sets and clears as it changes phases.
#[derive(Debug)]
pub struct Deadline {
    entry: Arc<DeadlineEntry>,
    index: usize,
    deadlines: Arc<Deadlines>,
}

impl StartTime {
    /// Returns the current time.
    pub fn now() -> Self {
        Self(SystemClock.now())
    }

    /// Returns the milliseconds since then.
    pub fn elapsed_millis(self) -> u64 {
        u64::try_from(SystemClock.now().since(self.0).as_millis()).unwrap_or(NEVER - 1)
    }
}

impl Ticker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system can't start a thread.
    pub fn start() -> io::Result<Self> {
        let (sender, ticks) = watch::channel(());
        let (alive, ended) = mpsc::channel();
        let run = move || {
            while ended.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
                sender.send_replace(());
            }
        };
        let thread = std::thread::Builder::new().name("ticker".to_owned()).spawn(run)?;
        Ok(Self { ticks, alive: Some(alive), thread: Some(thread) })
    }

    /// Returns a receiver that changes with each tick.
    pub fn ticks(&self) -> watch::Receiver<()> {
        self.ticks.clone()
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Deadlines {
    /// Creates the deadlines of one worker.
    pub fn new(start: StartTime) -> Self {
        let new = Self { start, now: AtomicU64::new(0), stopping: AtomicBool::new(false), list: Mutex::default() };
        new.update_now();
        new
    }

    /// Reads the clock, and stores the time.
    fn update_now(&self) -> u64 {
        let now = self.start.elapsed_millis();
        self.now.store(now, Ordering::Relaxed);
        now
    }

    /// Reads the clock, and wakes the owners of overdue deadlines. Called once per tick.
    pub fn scan(&self) {
        let now = self.update_now();
        self.wake(|entry| entry.due.load(Ordering::Relaxed) <= now);
    }

    fn wake(&self, is_due: impl Fn(&DeadlineEntry) -> bool) {
        let wakers: Vec<_> = {
            let list = self.list.lock();
            list.iter().filter(|(_, entry)| is_due(entry)).filter_map(|(_, entry)| entry.waker.lock().clone()).collect()
        };
        // Wakers are foreign code: never call them under the lock.
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Signals shutdown to all owners of a deadline.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake(|_| true);
    }

    /// Returns `true` if the worker is shutting down.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the milliseconds since the server started, as of the last scan.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Adds a deadline that is not set.
    pub fn add(self: &Arc<Self>) -> Deadline {
        let entry = Arc::new(DeadlineEntry { due: AtomicU64::new(NEVER), waker: Mutex::default() });
        let index = self.list.lock().insert(Arc::clone(&entry));
        Deadline { entry, index, deadlines: Arc::clone(self) }
    }
}

impl Deadline {
    /// Sets the deadline to `after` from now.
    pub fn set(&self, after: Duration) {
        let after = u64::try_from((after + TICK).as_millis()).unwrap_or(NEVER);
        self.entry.due.store(self.deadlines.now().saturating_add(after), Ordering::Relaxed);
    }

    /// Clears the deadline.
    pub fn clear(&self) {
        self.entry.due.store(NEVER, Ordering::Relaxed);
    }

    /// Returns `true` if the deadline is set.
    pub fn is_set(&self) -> bool {
        self.entry.due.load(Ordering::Relaxed) != NEVER
    }

    /// Returns `true` if the deadline has passed.
    pub fn is_due(&self) -> bool {
        self.entry.due.load(Ordering::Relaxed) <= self.deadlines.now()
    }

    /// Is ready when the deadline has passed. The task is also woken when the worker shuts down.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waker = self.entry.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        drop(waker);
        if self.is_due() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Returns the worker's deadlines.
    pub fn deadlines(&self) -> &Arc<Deadlines> {
        &self.deadlines
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let removed = self.deadlines.list.lock().try_remove(self.index);
        drop(removed);
    }
}
