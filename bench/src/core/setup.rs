//! Shared by the comparisons: quotas for each crate.

use std::num::NonZeroU32;
use std::time::Duration;

/// A rate and a burst, converted to each crate's own type.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) interval: Duration,
    pub(crate) burst: u32,
}

/// Allows every check of a run: a burst of four thousand million, refilled at a million per second. The interval is not
/// 1 ns, so that divisions by it have their usual cost.
pub(crate) const UNREACHED: Rate = Rate { interval: Duration::from_micros(1), burst: u32::MAX };
/// Allows one check, then denies for the rest of the run.
pub(crate) const USED_UP: Rate = Rate { interval: Duration::from_secs(3_600), burst: 1 };
/// Allows a thousand checks per key, and keeps every key: nothing is refilled within a run.
pub(crate) const NEVER_REFILLED: Rate = Rate { interval: Duration::from_secs(3_600), burst: 1_000 };

impl Rate {
    pub(crate) fn diana(self) -> diana_core::Quota {
        diana_core::Quota::new(1, self.interval).unwrap().with_burst(u64::from(self.burst)).unwrap()
    }

    pub(crate) fn governor(self) -> governor::Quota {
        governor::Quota::with_period(self.interval).unwrap().allow_burst(NonZeroU32::new(self.burst).unwrap())
    }

    pub(crate) fn bare(self) -> super::bare_cas::BareCas {
        super::bare_cas::BareCas::new(u64::try_from(self.interval.as_nanos()).unwrap(), u64::from(self.burst))
    }
}
