//! Tokio's clock, for the feature `async`.

use crate::{Clock, SystemClock, Timestamp};

/// Tokio's clock, which tests can pause: time then advances only when every task waits.
///
/// It starts at the system clock's time of its creation.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    start: Timestamp,
}

impl TokioClock {
    /// Creates a clock that starts now.
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now(), start: SystemClock.now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.start + self.origin.elapsed()
    }
}
