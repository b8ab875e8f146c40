//! Readers and writers that move so many bytes a second.
//!
//! # How it works
//! A reader reads into a buffer of its own, and hands on what it has permits for: how much a read brings is known only after
//! it, and this way just that is paid. A writer is told how much there is, so it takes permits for a piece first and gives back
//! at once what the piece was larger than what moved.
//!
//! # What always holds (tests/it/pace_bytes.rs, tests/it/pace_short_writes.rs)
//! - Every byte passes, in order. Errors and the end pass without a wait.
//! - A byte is paid for once, when it moves. One that does not move costs nothing, unless others were promised times behind
//!   it: then it waits for the next write, and is lost if that does not come within 50 ms.

mod blocking;
mod tokio_io;

use super::payer::PacedPermits;
use diana_core::Limiter;
use std::fmt;
use std::sync::Arc;

/// The most that one read brings into the buffer.
const MOST_READ: usize = 64 * 1024;

pin_project_lite::pin_project! {
    /// A reader, a writer, or both, throttled in bytes: a permit is a byte.
    ///
    /// It reads and writes as what it wraps does: by `std::io`, blocking, or by tokio. What goes beyond the burst is cut into
    /// pieces of 20 ms, and those who share a limiter take turns, piece by piece.
    ///
    /// ```
    /// use diana::core::{Limiter, Quota, TokioClock};
    /// use diana::pace::Throttled;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// // 100 kB/s for both copies together, of which 10 kB may go at once.
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
    /// A read may have brought bytes whose turn has not come; they are handed on by later reads, and are lost with the reader.
    /// A write, dropped or not, has taken what it said. There is no seeking, and for `BufRead` put a `BufReader` around it.
    ///
    /// # Errors
    /// If the limit is used up for good: [`Exhausted`](super::UsedUp), in an error of the kind `QuotaExceeded`.
    ///
    /// # Panics
    /// When it must wait, by tokio, and there is no tokio runtime with a timer.
    pub struct Throttled<T> {
        #[pin]
        io: T,
        reading: Option<Reading>,
        writing: Option<PacedPermits>,
    }
}

impl<T> Throttled<T> {
    /// `io` as it is, until [`reads`](Self::reads), [`writes`](Self::writes) or both say how fast.
    ///
    /// ```
    /// use diana::core::{Limiter, Quota};
    /// use diana::pace::Throttled;
    /// use std::io::Write;
    /// use std::sync::Arc;
    ///
    /// let budget = Arc::new(Limiter::new(Quota::per_second(1_000_000)?));
    /// let mut file = Throttled::new(Vec::new()).reads(budget.clone()).writes(budget);
    /// file.write_all(b"either way, a megabyte a second")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(io: T) -> Self {
        Self { io, reading: None, writing: None }
    }

    /// Throttles what is read from it.
    ///
    /// ```
    /// use diana::core::{Clock, Limiter, ManualClock, Quota, Timestamp};
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
            reading: Some(Reading {
                till: PacedPermits::new(limiter.into()),
                buffer: Vec::new(),
                brought: 0,
                passed: 0,
            }),
            ..self
        }
    }

    /// Throttles what is written to it.
    ///
    /// ```
    /// use diana::core::{Clock, Limiter, ManualClock, Quota, Timestamp};
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

    /// What is throttled.
    ///
    /// ```
    /// assert_eq!(diana::pace::Throttled::new(7).get_ref(), &7);
    /// ```
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// What was throttled, and what was read from it and not yet handed on.
    ///
    /// ```
    /// assert_eq!(diana::pace::Throttled::new(7).into_parts(), (7, vec![]));
    /// ```
    pub fn into_parts(self) -> (T, Vec<u8>) {
        (self.io, self.reading.map_or_else(Vec::new, |reading| reading.rest().to_vec()))
    }
}

/// What was read and has not passed yet.
struct Reading {
    till: PacedPermits,
    /// Room for the largest read so far, of which the first `brought` bytes are what the last one brought.
    buffer: Vec<u8>,
    brought: usize,
    passed: usize,
}

impl Reading {
    fn rest(&self) -> &[u8] {
        self.buffer.get(self.passed..self.brought).unwrap_or_default()
    }

    /// Fills the buffer by `read`, which is given room for what somebody has room for.
    fn fill<E>(&mut self, room: usize, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<(), E> {
        (self.brought, self.passed) = (0, 0);
        let room = room.min(MOST_READ);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        self.brought = read(self.buffer.get_mut(..room).unwrap_or_default())?.min(room);
        Ok(())
    }

    /// How much of the rest to ask for, if there is room for so much.
    fn wanted(&self, room: usize) -> usize {
        self.rest().len().min(room)
    }

    /// So much of the rest as was paid.
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

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("till", &self.till).field("held", &self.rest().len()).finish()
    }
}
