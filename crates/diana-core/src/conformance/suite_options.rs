//! The options of the suite.

use crate::Timestamp;
use crate::time::saturating_nanos;
use std::time::Duration;

/// The options of the suite: the store's time resolution, the start time, and the unsupported algorithms.
///
/// ```
/// use diana_core::{Timestamp, conformance::SuiteOptions};
/// use std::time::Duration;
///
/// // A store on a server that counts microseconds and has no script for logs.
/// let options = SuiteOptions::default()
///     .tick(Duration::from_micros(1))
///     .start(Timestamp::from_secs(1_800_000_000))
///     .without("sliding_log");
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct SuiteOptions {
    start: Timestamp,
    tick: Duration,
    seed: u64,
    steps: usize,
    without: Vec<String>,
}

impl Default for SuiteOptions {
    /// Starts in November 2023, with nanoseconds, every algorithm, and scripts of 400 steps.
    fn default() -> Self {
        let start = Timestamp::from_secs(1_700_000_000);
        Self { start, tick: Duration::from_nanos(1), seed: 1, steps: 400, without: Vec::new() }
    }
}

impl SuiteOptions {
    /// Sets the time at which every check starts, rounded up to a whole tick.
    #[must_use]
    pub fn start(self, start: Timestamp) -> Self {
        Self { start, ..self }
    }

    /// Sets the store's time resolution; a nanosecond by default. Times are whole ticks, and durations may differ by
    /// less than one.
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick: tick.max(Duration::from_nanos(1)), ..self }
    }

    /// Sets the seed of the random scripts; the same seed gives the same scripts.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// Sets the length of the random scripts.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// Excludes one of the [algorithms](super::algorithms), which the store does not support.
    #[must_use]
    pub fn without(mut self, algorithm: impl Into<String>) -> Self {
        self.without.push(algorithm.into());
        self
    }

    pub(super) fn excludes(&self, algorithm: &str) -> bool {
        self.without.iter().any(|name| name == algorithm)
    }

    pub(super) fn start_time(&self) -> Timestamp {
        let tick = saturating_nanos(self.tick);
        Timestamp::from_nanos(self.start.as_nanos().div_ceil(tick).saturating_mul(tick))
    }

    /// Returns the time step of the checks: a millisecond, or the whole ticks that are at least that long.
    pub(super) fn unit(&self) -> Duration {
        let tick = saturating_nanos(self.tick);
        Duration::from_nanos(1_000_000_u64.div_ceil(tick).saturating_mul(tick))
    }

    /// Returns `true` if two durations are equal for this store.
    pub(super) fn same(&self, a: Duration, b: Duration) -> bool {
        a.abs_diff(b) < self.tick
    }

    pub(super) fn script(&self) -> (u64, usize) {
        (self.seed, self.steps)
    }
}
