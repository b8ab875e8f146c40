//! The items that passed, and when: the resulting rate, and the worst gap.

use diana_bench::now;
use diana_bench::report::ns;
use std::time::{Duration, Instant};

/// The time before counting starts: until the burst is used up.
const BEFORE: Duration = Duration::from_millis(100);

/// One paced flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowMeter {
    start: Option<Instant>,
    /// The start of counting.
    first: Option<Instant>,
    last: Option<Instant>,
    /// The amount that passed after `first`.
    amount: u64,
    worst_gap: Duration,
}

impl FlowMeter {
    /// Counts an amount that passes now. Returns whether `length` has passed.
    pub(crate) fn passed(&mut self, amount: u64, length: Duration) -> bool {
        let now = now();
        let start = *self.start.get_or_insert(now);
        let (Some(first), Some(last)) = (self.first, self.last) else {
            if now - start >= BEFORE {
                (self.first, self.last) = (Some(now), Some(now));
            }
            return false;
        };
        self.amount += amount;
        self.worst_gap = self.worst_gap.max(now - last);
        self.last = Some(now);
        now - first >= length
    }

    /// Returns the amount per second.
    pub(crate) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        self.amount as f64 / (last - first).as_secs_f64()
    }

    /// Returns the counted amount.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns the longest time between two items, formatted.
    pub(crate) fn worst_gap(&self) -> String {
        ns(self.worst_gap.as_nanos() as f64)
    }
}
