//! What the suite is told about the store.

use crate::Timestamp;
use crate::time::saturating_nanos;
use std::time::Duration;

/// What the suite is told about the store: how fine its time is, when the checks begin, and what it can't keep.
///
/// ```
/// use diana_core::{Timestamp, conformance::Setup};
/// use std::time::Duration;
///
/// // A store on a server that counts microseconds and has no script for logs.
/// let setup = Setup::default()
///     .tick(Duration::from_micros(1))
///     .start(Timestamp::from_secs(1_800_000_000))
///     .without("sliding_log");
/// # let _ = setup;
/// ```
#[derive(Clone, Debug)]
pub struct Setup {
    start: Timestamp,
    tick: Duration,
    seed: u64,
    steps: usize,
    without: Vec<String>,
}

impl Default for Setup {
    /// From November 2023 on, in nanoseconds, every algorithm, with scripts of 400 steps.
    fn default() -> Self {
        let start = Timestamp::from_secs(1_700_000_000);
        Self { start, tick: Duration::from_nanos(1), seed: 1, steps: 400, without: Vec::new() }
    }
}

impl Setup {
    /// The time at which every check begins; the next whole tick, if it is not one.
    #[must_use]
    pub fn start(self, start: Timestamp) -> Self {
        Self { start, ..self }
    }

    /// How fine the store's time is; a nanosecond unless said otherwise. Times are whole ticks, and durations may differ
    /// by less than one.
    #[must_use]
    pub fn tick(self, tick: Duration) -> Self {
        Self { tick: tick.max(Duration::from_nanos(1)), ..self }
    }

    /// Where the random scripts begin: another seed, other scripts; the same seed, the same ones.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// How long the random scripts are.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        Self { steps, ..self }
    }

    /// Leaves out one of the [algorithms](super::algorithms), which the store does not support.
    #[must_use]
    pub fn without(mut self, algorithm: impl Into<String>) -> Self {
        self.without.push(algorithm.into());
        self
    }

    pub(super) fn leaves_out(&self, algorithm: &str) -> bool {
        self.without.iter().any(|name| name == algorithm)
    }

    pub(super) fn begins(&self) -> Timestamp {
        let tick = saturating_nanos(self.tick);
        Timestamp::from_nanos(self.start.as_nanos().div_ceil(tick).saturating_mul(tick))
    }

    /// The step in which the checks move time: a millisecond, or the whole ticks that are at least that long.
    pub(super) fn unit(&self) -> Duration {
        let tick = saturating_nanos(self.tick);
        Duration::from_nanos(1_000_000_u64.div_ceil(tick).saturating_mul(tick))
    }

    /// Whether two durations are the same to this store.
    pub(super) fn same(&self, a: Duration, b: Duration) -> bool {
        a.abs_diff(b) < self.tick
    }

    pub(super) fn script(&self) -> (u64, usize) {
        (self.seed, self.steps)
    }
}
