//! Where the time comes from. Only a [`Clock`] reads it; everything else is told.

use crate::Timestamp;
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::time::saturating_nanos;
use std::fmt::Debug;
// Not the shim's: the model checkers' have no `dyn` inside.
use std::sync::{Arc as Shared, OnceLock};
use std::time::{Duration, SystemTime};

/// Tells the time, and lets a thread wait for it.
///
/// # The contract
/// 1. [`now`](Self::now) never goes back, on any thread.
/// 2. [`park`](Self::park) may return early (whoever waits looks again), but not much later than asked.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;

    /// Waits until this thread is unparked, or `at_most` has passed.
    fn park(&self, at_most: Duration) {
        crate::sync::thread::park_timeout(at_most);
    }
}

/// The system's monotonic clock, set to the wall clock once, when the process first asks.
///
/// Windows that are aligned to the clock therefore follow the wall clock as it was then: a later step of the wall clock
/// (by hand or by NTP) moves no limit, which is what a limiter wants, and moves no window either.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// The one time source of the process: making one costs 14 µs and reading it 10 ns.
struct Origin {
    ticker: quanta::Clock,
    ticks: u64,
    nanos: u64,
}

impl Origin {
    #[inline(always)]
    fn get() -> &'static Self {
        static ORIGIN: OnceLock<Origin> = OnceLock::new();
        ORIGIN.get_or_init(Self::new)
    }

    fn new() -> Self {
        let ticker = quanta::Clock::new();
        #[allow(clippy::disallowed_methods, reason = "this is the one place that sets the clock")]
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ticks = ticker.raw();
        Self { ticker, ticks, nanos: saturating_nanos(wall) }
    }
}

impl Clock for SystemClock {
    #[inline(always)]
    fn now(&self) -> Timestamp {
        let origin = Origin::get();
        let elapsed = origin.ticker.delta_as_nanos(origin.ticks, origin.ticker.raw());
        Timestamp::from_nanos(origin.nanos.saturating_add(elapsed))
    }
}

/// Where a limiter has its time from: the system's clock without a detour, or another one.
#[derive(Clone, Debug, Default)]
pub(crate) enum Time {
    #[default]
    System,
    Other(Shared<dyn Clock>),
}

impl Time {
    pub(crate) fn from_clock(clock: impl Clock) -> Self {
        Self::Other(Shared::new(clock))
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn park(&self, at_most: Duration) {
        self.as_clock().park(at_most);
    }

    pub(crate) fn as_clock(&self) -> &dyn Clock {
        match self {
            Self::System => &SystemClock,
            Self::Other(clock) => &**clock,
        }
    }
}

/// A clock that is moved by hand, for tests and simulations. Clones share the time.
///
/// A thread that waits on it moves it, as Guava's fake stopwatch does: waiting takes no real time and leaves the clock
/// where the wait ends, so a test reads as a transcript. (A wait without an end is really waited for.)
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
    /// A clock that stands at the epoch.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that stands at `time`.
    pub fn at(time: Timestamp) -> Self {
        Self { nanos: Arc::new(AtomicU64::new(time.as_nanos())) }
    }

    /// Moves the time on.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Moves the time to `time`, unless it is there or past it already: time never goes back.
    pub fn set(&self, time: Timestamp) {
        self.nanos.fetch_max(time.as_nanos(), Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn park(&self, at_most: Duration) {
        // A wait without an end moves nothing: only somebody else can end it, so this looks again soon, in real time.
        if self.now() + at_most == Timestamp::MAX {
            crate::sync::thread::park_timeout(Duration::from_millis(1));
        } else {
            self.advance(at_most);
        }
    }
}
