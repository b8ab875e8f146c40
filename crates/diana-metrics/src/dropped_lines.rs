//! The number of log lines that were dropped.

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
