//! Readers and writers with a limited number of bytes per second.
//!
//! # How it works
//! A reader reads into a buffer, and passes on the bytes that it has permits for: the length of a read is only known
//! afterwards, and this way exactly that is charged. A writer knows the length of its buffer, so it acquires permits
//! for a chunk first and immediately refunds those for bytes that were not written.
//!
//! # What always holds (tests/it/pace_bytes.rs, tests/it/pace_short_writes.rs)
//! - Every byte passes, in order. Errors and the end of the stream pass without a wait.
//! - A byte is charged once, when it is transferred. A byte that is not transferred costs nothing, unless there are
//!   later reservations: then its permit is kept for the next write, and expires after 50 ms.

mod blocking;
mod tokio_io;

use super::paced_permits::PacedPermits;
use diana_core::Limiter;
use std::fmt;
use std::sync::Arc;

/// The maximum length of one read into the buffer.
const MAX_READ: usize = 64 * 1024;

pin_project_lite::pin_project! {
    /// A throttled reader, writer, or both: one permit is one byte.
    ///
    /// It supports the I/O traits of the wrapped type: `std::io`, blocking, or tokio's. Bytes over the burst are split
    /// into chunks of 20 ms, and users of a shared limiter take turns, chunk by chunk.
    ///
    /// ```
    /// use diana::{Limiter, Quota, TokioClock};
    /// use diana::pace::Throttled;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // 100 kB/s for both copies together, with a burst of 10 kB.
    /// let limiter = Limiter::new(Quota::per_second(100_000)?.with_burst(10_000)?);
    /// # let limiter = limiter.with_clock(TokioClock::new());
    /// let budget = Arc::new(limiter);
    /// let began = tokio::time::Instant::now();
    ///
    /// let mut film = Throttled::new(&[0; 60_000][..]).reads(budget.clone());
    /// let mut song = Throttled::new(&[0; 50_000][..]).reads(budget);
    /// let (mut screen, mut speaker) = (Vec::new(), Vec::new());
    /// tokio::try_join!(tokio::io::copy(&mut film, &mut screen), tokio::io::copy(&mut song, &mut speaker))?;
    /// assert_eq!(began.elapsed(), Duration::from_secs(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The buffer may contain bytes that wait for their permits; later reads return them, and dropping the reader loses
    /// them. A write, cancelled or not, has accepted the bytes that it reported. Seeking is not supported; for
    /// `BufRead`, wrap it in a `BufReader`.
    ///
    /// # Errors
    /// If the limit is exhausted: [`Exhausted`](super::Exhausted), in an error of the kind `QuotaExceeded`.
    ///
    /// # Panics
    /// If it must wait, with tokio's traits, and there is no tokio runtime with a timer.
    pub struct Throttled<T> {
        #[pin]
        io: T,
        reading: Option<ReadBuffer>,
        writing: Option<PacedPermits>,
    }
}

impl<T> Throttled<T> {
    /// Wraps `io` without a limit; [`reads`](Self::reads) and [`writes`](Self::writes) set the limits.
    ///
    /// ```
    /// use diana::{Limiter, Quota};
    /// use diana::pace::Throttled;
    /// use std::io::Write;
    /// use std::sync::Arc;
    ///
    /// let budget = Arc::new(Limiter::new(Quota::per_second(1_000_000)?));
    /// let mut file = Throttled::new(Vec::new()).reads(budget.clone()).writes(budget);
    /// file.write_all(b"one megabyte per second in total")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(io: T) -> Self {
        Self { io, reading: None, writing: None }
    }

    /// Throttles reads.
    ///
    /// ```
    /// use diana::{Clock, Limiter, ManualClock, Quota, Timestamp};
    /// use diana::pace::Throttled;
    /// use std::io::Read;
    ///
    /// let clock = ManualClock::new(); // Waiting moves it, and takes no time.
    /// let limiter = Limiter::new(Quota::per_second(1_000)?).with_clock(clock.clone());
    ///
    /// let mut text = Vec::new();
    /// Throttled::new(&[0; 3_500][..]).reads(limiter).read_to_end(&mut text)?;
    /// assert_eq!(clock.now(), Timestamp::from_millis(2_500)); // The first thousand were the burst.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn reads(self, limiter: impl Into<Arc<Limiter>>) -> Self {
        Self {
            reading: Some(ReadBuffer {
                permits: PacedPermits::new(limiter.into()),
                buffer: Vec::new(),
                filled: 0,
                passed: 0,
            }),
            ..self
        }
    }

    /// Throttles writes.
    ///
    /// ```
    /// use diana::{Clock, Limiter, ManualClock, Quota, Timestamp};
    /// use diana::pace::Throttled;
    /// use std::io::Write;
    ///
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::new(Quota::per_second(1_000)?).with_clock(clock.clone());
    ///
    /// Throttled::new(Vec::new()).writes(limiter).write_all(&[0; 3_500])?;
    /// assert_eq!(clock.now(), Timestamp::from_millis(2_500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn writes(self, limiter: impl Into<Arc<Limiter>>) -> Self {
        Self { writing: Some(PacedPermits::new(limiter.into())), ..self }
    }

    /// Returns the wrapped reader or writer.
    ///
    /// ```
    /// assert_eq!(diana::pace::Throttled::new(7).get_ref(), &7);
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Returns the wrapped reader or writer, and the bytes that were read but not passed on.
    ///
    /// ```
    /// assert_eq!(diana::pace::Throttled::new(7).into_parts(), (7, vec![]));
    /// ```
    pub fn into_parts(self) -> (T, Vec<u8>) {
        (self.io, self.reading.map_or_else(Vec::new, |reading| reading.rest().to_vec()))
    }
}

/// Bytes that were read and have not passed yet.
struct ReadBuffer {
    permits: PacedPermits,
    /// The buffer, as long as the largest read so far; its first `filled` bytes are from the last read.
    buffer: Vec<u8>,
    filled: usize,
    passed: usize,
}

impl ReadBuffer {
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.passed..self.filled).unwrap_or_default()
    }

    /// Fills the buffer by `read`, with at most `max` bytes.
    fn fill<E>(&mut self, max: usize, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<(), E> {
        (self.filled, self.passed) = (0, 0);
        let max = max.min(MAX_READ);
        if self.buffer.len() < max {
            self.buffer.resize(max, 0);
        }
        self.filled = read(self.buffer.get_mut(..max).unwrap_or_default())?.min(max);
        Ok(())
    }

    /// Returns how much of the rest to request, given `max` bytes in the destination.
    fn wanted(&self, max: usize) -> usize {
        self.rest().len().min(max)
    }

    /// Returns the paid part of the rest.
    fn pass(&mut self, paid: usize) -> &[u8] {
        let length = self.rest().len().min(paid);
        let from = self.passed;
        self.passed += length;
        self.buffer.get(from..self.passed).unwrap_or_default()
    }
}

impl<T: fmt::Debug> fmt::Debug for Throttled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Throttled");
        fields.field("io", &self.io).field("reading", &self.reading).field("writing", &self.writing).finish()
    }
}

impl fmt::Debug for ReadBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuffer").field("permits", &self.permits).field("held", &self.rest().len()).finish()
    }
}
