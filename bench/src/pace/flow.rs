//! What passed, and when: the rate that comes of it, and the worst gap.

use diana_bench::now;
use diana_bench::report::ns;
use std::time::{Duration, Instant};

/// How long to wait before anything counts: until the burst is used up.
const BEFORE: Duration = Duration::from_millis(100);

/// One thing that is paced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    began: Option<Instant>,
    /// From where on it counts.
    first: Option<Instant>,
    last: Option<Instant>,
    /// What passed after `first`.
    amount: u64,
    worst_gap: Duration,
}

impl Flow {
    /// So much passes now. Tells whether that is enough: `length` has passed.
    pub(crate) fn passed(&mut self, amount: u64, length: Duration) -> bool {
        let now = now();
        let began = *self.began.get_or_insert(now);
        let (Some(first), Some(last)) = (self.first, self.last) else {
            if now - began >= BEFORE {
                (self.first, self.last) = (Some(now), Some(now));
            }
            return false;
        };
        self.amount += amount;
        self.worst_gap = self.worst_gap.max(now - last);
        self.last = Some(now);
        now - first >= length
    }

    /// How much passed a second.
    pub(crate) fn rate(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        self.amount as f64 / (last - first).as_secs_f64()
    }

    /// How much passed in all, while it counted.
    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }

    /// The longest time between two that passed, as it is read.
    pub(crate) fn worst_gap(&self) -> String {
        ns(self.worst_gap.as_nanos() as f64)
    }
}
