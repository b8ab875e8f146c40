//! One key under one algorithm with a clock of its own, whose answers read as a transcript.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use diana_core::{Algorithm, Clock, Cost, ManualClock, Outcome, Patience, Receipt, Refund, Retry, Standing};
use std::time::Duration;

/// One key, its algorithm and its clock.
pub(crate) struct Trial<A: Algorithm> {
    pub(crate) clock: ManualClock,
    pub(crate) algorithm: A,
    state: A::State,
    receipts: Vec<Receipt>,
}

impl<A: Algorithm> Trial<A> {
    /// A key that is seen for the first time at the epoch.
    pub(crate) fn new(algorithm: A) -> Self {
        let clock = ManualClock::new();
        Self { state: algorithm.fresh(clock.now()), clock, algorithm, receipts: Vec::new() }
    }

    /// Asks for `cost` now or not at all.
    pub(crate) fn ask(&mut self, cost: u64) -> String {
        self.ask_within(cost, Patience::NONE)
    }

    /// Asks for `cost`, ready to wait for ever.
    pub(crate) fn wait_for(&mut self, cost: u64) -> String {
        self.ask_within(cost, Patience::FOREVER)
    }

    /// Asks for `cost`, ready to wait as long as `patience`.
    pub(crate) fn ask_within(&mut self, cost: u64, patience: Patience) -> String {
        let outcome = self.take(cost, patience);
        let left = self.standing().remaining;
        match outcome {
            Outcome::Granted { wait: Duration::ZERO, .. } => format!("granted, {left} left"),
            Outcome::Granted { wait, .. } => format!("granted after {wait:?}, {left} left"),
            Outcome::Denied { retry: Retry::After(wait) } => format!("denied, retry in {wait:?}"),
            Outcome::Denied { retry: Retry::WhenReturned } => "denied until something is returned".to_owned(),
            Outcome::Denied { retry: Retry::Never } => "denied for good".to_owned(),
        }
    }

    /// Asks for `cost` and keeps the receipt.
    pub(crate) fn take(&mut self, cost: u64, patience: Patience) -> Outcome {
        let outcome = self.algorithm.take(&mut self.state, self.clock.now(), Cost::new(cost).unwrap(), patience);
        self.receipts.extend(outcome.receipt());
        outcome
    }

    /// Gives back the `nth` grant, counted from 0.
    pub(crate) fn refund(&mut self, nth: usize) -> Refund {
        self.algorithm.refund(&mut self.state, self.clock.now(), &self.receipts[nth])
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.algorithm.charge(&mut self.state, self.clock.now(), Cost::new(cost).unwrap());
    }

    /// Puts other parameters in force.
    pub(crate) fn rescale(&mut self, algorithm: A) {
        algorithm.rescale(&mut self.state, &self.algorithm, self.clock.now());
        self.algorithm = algorithm;
    }

    pub(crate) fn standing(&self) -> Standing {
        self.algorithm.standing(&self.state, self.clock.now())
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.algorithm.is_fresh(&self.state, self.clock.now())
    }
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
