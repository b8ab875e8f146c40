//! Log lines: how many were dropped, and how often a warning is repeated.

use diana_core::{Limiter, Quota};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of dropped lines, as the metrics report it.
#[derive(Clone, Debug, Default)]
pub struct DroppedLines(Arc<AtomicU64>);

impl DroppedLines {
    /// Returns the number of dropped lines: their reader was too slow, or there was none.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds dropped lines.
    pub fn add(&self, lines: u64) {
        self.0.fetch_add(lines, Ordering::Relaxed);
    }
}

/// A limit for a warning that is logged at most once a second.
#[derive(Debug)]
pub struct OncePerSecond(Option<Limiter>);

impl Default for OncePerSecond {
    fn default() -> Self {
        Self(Quota::per_second(1).ok().map(Limiter::new))
    }
}

impl OncePerSecond {
    /// Returns whether it may be logged now.
    pub fn check(&self) -> bool {
        self.0.as_ref().is_some_and(|limiter| limiter.check().is_granted())
    }
}
