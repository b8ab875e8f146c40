//! The source of time. Only a [`Clock`] reads it; everything else gets it as a parameter.

#[cfg(feature = "async")]
mod tokio_clock;

#[cfg(feature = "async")]
pub use tokio_clock::TokioClock;

use crate::Timestamp;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::saturating_nanos;
use std::fmt::Debug;
// The `Arc` of `crate::sync` does not support `dyn` under the model checkers.
use std::sync::{Arc as StdArc, OnceLock};
use std::time::{Duration, SystemTime};

/// Reads the time, and parks a thread until a time.
///
/// # The contract
/// 1. [`now`](Self::now) never goes back, on any thread.
/// 2. [`park`](Self::park) may return early (the caller checks again), but not much later than asked.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;

    /// Waits until this thread is unparked, or `timeout` has passed.
    fn park(&self, timeout: Duration) {
        crate::sync::thread::park_timeout(timeout);
    }
}

/// The system's monotonic clock, set to the wall clock once, when the process first reads it.
///
/// Windows that are aligned to the clock therefore follow the wall clock as of that time: a later step of the wall
/// clock (manual or by NTP) affects neither limits nor windows.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// The single time source of the process: creating one takes 14 µs, reading it 10 ns.
struct Origin {
    ticker: quanta::Clock,
    ticks: u64,
    nanos: u64,
    /// The nanoseconds of 2⁴⁰ ticks: a constant shift is cheaper than `Clock::delta_as_nanos`, and as exact.
    nanos_per_2_40_ticks: u64,
}

const TICKS_SHIFT: u32 = 40;

impl Origin {
    #[inline(always)]
    fn get() -> &'static Self {
        static ORIGIN: OnceLock<Origin> = OnceLock::new();
        ORIGIN.get_or_init(Self::new)
    }

    fn new() -> Self {
        let ticker = quanta::Clock::new();
        #[allow(clippy::disallowed_methods, reason = "only this function reads the wall clock")]
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ticks = ticker.raw();
        let nanos_per_2_40_ticks = ticker.delta_as_nanos(0, 1 << TICKS_SHIFT);
        Self { ticker, ticks, nanos: saturating_nanos(wall), nanos_per_2_40_ticks }
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        let origin = Origin::get();
        let ticks = origin.ticker.raw().saturating_sub(origin.ticks);
        let elapsed = (u128::from(ticks) * u128::from(origin.nanos_per_2_40_ticks)) >> TICKS_SHIFT;
        #[allow(clippy::cast_possible_truncation, reason = "584 years after the process has started")]
        Timestamp::from_nanos(origin.nanos.saturating_add(elapsed as u64))
    }
}

/// A limiter's time source: the system clock without dynamic dispatch, or another clock.
#[derive(Clone, Debug, Default)]
pub(crate) enum LimiterClock {
    #[default]
    System,
    Other(StdArc<dyn Clock>),
}

impl LimiterClock {
    pub(crate) fn from_clock(clock: impl Clock) -> Self {
        Self::Other(StdArc::new(clock))
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn park(&self, timeout: Duration) {
        self.as_clock().park(timeout);
    }

    pub(crate) fn as_clock(&self) -> &dyn Clock {
        match self {
            Self::System => &SystemClock,
            Self::Other(clock) => &**clock,
        }
    }
}

/// A clock that is set manually, for tests and simulations. Clones share the time.
///
/// A thread that waits on it advances it, like Guava's fake stopwatch: a wait takes no real time and leaves the clock
/// at the end of the wait, so a test reads as a transcript. (A wait without a timeout does block.)
///
/// ```
/// use diana_core::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let clock = ManualClock::at(Timestamp::from_secs(100));
/// clock.advance(Duration::from_millis(250));
/// assert_eq!(clock.now(), Timestamp::from_millis(100_250));
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    nanos: Arc<AtomicU64>,
}

impl ManualClock {
    /// Creates a clock at the epoch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a clock at `time`.
    pub fn at(time: Timestamp) -> Self {
        Self { nanos: Arc::new(AtomicU64::new(time.as_nanos())) }
    }

    /// Advances the time.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Sets the time to `time`, unless it is already later: time never goes back.
    pub fn set(&self, time: Timestamp) {
        self.nanos.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn park(&self, timeout: Duration) {
        // Without a timeout nothing advances: only another thread can end it, so this checks again soon, in real time.
        if self.now() + timeout == Timestamp::MAX {
            crate::sync::thread::park_timeout(Duration::from_millis(1));
        } else {
            self.advance(timeout);
        }
    }
}
