//! What an attribute says about a limit of its own.

use super::{By, Key};
use crate::limited::{Cause, Limited};
use diana_core::{FixedWindow, InitialPermits, Quota, SmoothBursty, WindowStart};
use std::time::Duration;

/// What `#[rate_limit]` or `#[count_limit]` says.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The prefix and the function's path.
    pub name: &'static str,
    /// How long the prefix is.
    pub prefix: usize,
    /// Which limits it counts in: those of this name, or the program's.
    pub instance: Option<&'static str>,
    /// What keys begin with.
    pub by: By,
    /// Whether there is more than one key.
    pub keys: Keys,
    /// How much is granted.
    pub limit: Allows,
    /// How long a call may wait.
    pub timeout: Duration,
    /// How long a key is kept in a shared store after a call, at least.
    pub expire: Option<Duration>,
}

/// How many keys a function has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// One for all calls.
    One,
    /// Many.
    Many,
}

/// How much an attribute grants.
#[derive(Clone, Copy, Debug)]
pub enum Allows {
    /// `#[rate_limit]`.
    Rate {
        /// Permits a second.
        rate: f64,
        /// How much time's worth of them is stored.
        burst: Duration,
    },
    /// `#[count_limit]`.
    Count {
        /// How many in one period.
        limit: u64,
        /// From the first call on.
        period: Duration,
    },
}

/// By which algorithm that is counted.
pub(super) enum Counting {
    Rate(SmoothBursty),
    Count(FixedWindow),
}

impl Spec {
    pub(super) fn counting(&self) -> Result<Counting, Cause> {
        Ok(match self.limit {
            Allows::Rate { rate, burst } => {
                let smooth = SmoothBursty::new(rate).and_then(|smooth| smooth.with_burst_seconds(burst.as_secs_f64()));
                // An idle key must equal a new one, or none could ever be forgotten.
                Counting::Rate(smooth.map_err(unusable)?.with_initial_permits(InitialPermits::Full))
            }
            Allows::Count { limit, period } => {
                let quota = Quota::new(limit, period).map_err(unusable)?;
                Counting::Count(FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest))
            }
        })
    }

    pub(super) fn limited(&self, key: &Key<'_>, cause: Cause) -> Limited {
        Limited::new(self.name, self.prefix, key.shown(self.by), cause).nobodys(key.is_nobodys(self.by))
    }
}

pub(super) fn unusable(error: impl std::error::Error) -> Cause {
    Cause::Unusable { problem: error.to_string().into() }
}
