//! One key under one algorithm, on a clock that the test owns, so that a test reads as a transcript.

use diana_core::{
    Algorithm, Clock, Cost, ManualClock, MaxWait, Outcome, Quota, Receipt, Refund, Retry, Status, Timestamp,
};
use std::time::Duration;

/// The start of the traces of the reference scripts: 1,700,000,000 s after the epoch.
pub(crate) const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Parses a quota.
pub(crate) fn quota(written: &str) -> Quota {
    written.parse().unwrap()
}

/// A key under test.
#[derive(Debug)]
pub(crate) struct Trial<A: Algorithm> {
    pub(crate) algorithm: A,
    pub(crate) state: A::State,
    pub(crate) clock: ManualClock,
    start: Timestamp,
    /// The grants, in order.
    receipts: Vec<Receipt>,
}

impl<A: Algorithm> Trial<A> {
    /// Creates a fresh key with the clock at the epoch.
    pub(crate) fn new(algorithm: A) -> Self {
        Self::at(Timestamp::EPOCH, algorithm)
    }

    /// Creates a fresh key with the clock at `start`.
    pub(crate) fn at(start: Timestamp, algorithm: A) -> Self {
        let state = algorithm.fresh(start);
        Self { algorithm, state, clock: ManualClock::at(start), start, receipts: Vec::new() }
    }

    /// Asks for `cost`, and returns the answer as text.
    pub(crate) fn ask(&mut self, cost: u64) -> String {
        self.ask_at(self.clock.now(), cost)
    }

    /// Advances the clock to `since_start` after its start, and asks.
    pub(crate) fn ask_after(&mut self, since_start: Duration, cost: u64) -> String {
        self.clock.set(self.start + since_start);
        self.ask(cost)
    }

    /// Asks with a clock at `now`, which may be behind.
    pub(crate) fn ask_at(&mut self, now: Timestamp, cost: u64) -> String {
        let outcome = self.take_at(now, cost, MaxWait::NONE);
        describe_outcome(&outcome, self.algorithm.status(&self.state, now).remaining)
    }

    /// Asks for `cost` without a timeout.
    pub(crate) fn wait_for(&mut self, cost: u64) -> String {
        self.ask_within(cost, MaxWait::FOREVER)
    }

    /// Asks for `cost`, waiting at most `max_wait`.
    pub(crate) fn ask_within(&mut self, cost: u64, max_wait: MaxWait) -> String {
        let outcome = self.take_within(cost, max_wait);
        describe_outcome(&outcome, self.status().remaining)
    }

    /// Asks for `cost`, waiting at most `max_wait`.
    pub(crate) fn take_within(&mut self, cost: u64, max_wait: MaxWait) -> Outcome {
        self.take_at(self.clock.now(), cost, max_wait)
    }

    fn take_at(&mut self, now: Timestamp, cost: u64, max_wait: MaxWait) -> Outcome {
        let cost = Cost::new(cost).unwrap();
        let peeked = self.algorithm.peek(&self.state, now, cost, max_wait);
        let outcome = self.algorithm.take(&mut self.state, now, cost, max_wait);
        assert_eq!(peeked, outcome, "peek must equal take");
        self.receipts.extend(outcome.receipt());
        outcome
    }

    /// Returns the answer of `ask`, without taking permits.
    pub(crate) fn peek(&self, cost: u64) -> String {
        let now = self.clock.now();
        let outcome = self.algorithm.peek(&self.state, now, Cost::new(cost).unwrap(), MaxWait::NONE);
        describe_outcome(&outcome, self.algorithm.status(&self.state, now).remaining)
    }

    /// Takes `cost`, which must be granted.
    pub(crate) fn take(&mut self, cost: u64) -> Receipt {
        let outcome = self.take_within(cost, MaxWait::NONE);
        outcome.receipt().unwrap()
    }

    pub(crate) fn refund(&mut self, receipt: &Receipt) -> Refund {
        self.algorithm.refund(&mut self.state, self.clock.now(), receipt)
    }

    /// Refunds the grant at `index`, counted from 0.
    pub(crate) fn refund_grant(&mut self, index: usize) -> Refund {
        let receipt = self.receipts[index];
        self.refund(&receipt)
    }

    pub(crate) fn charge(&mut self, cost: u64) {
        self.algorithm.charge(&mut self.state, self.clock.now(), Cost::new(cost).unwrap());
    }

    /// Changes the parameters.
    pub(crate) fn rescale(&mut self, algorithm: A) {
        algorithm.rescale(&mut self.state, &self.algorithm, self.clock.now());
        self.algorithm = algorithm;
    }

    pub(crate) fn status(&self) -> Status {
        self.algorithm.status(&self.state, self.clock.now())
    }

    /// As "3 of 5, reset in 2s".
    pub(crate) fn describe_status(&self) -> String {
        let status = self.status();
        format!("{} of {}, reset in {:?}", status.remaining, status.limit, status.reset)
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.algorithm.is_fresh(&self.state, self.clock.now())
    }
}

fn describe_outcome(outcome: &Outcome, remaining: u64) -> String {
    match outcome {
        Outcome::Granted { wait: Duration::ZERO, .. } => format!("granted, {remaining} remaining"),
        Outcome::Granted { wait, .. } => format!("granted after {wait:?}, {remaining} remaining"),
        Outcome::Denied { retry: Retry::After(wait) } => format!("denied, retry after {wait:?}"),
        Outcome::Denied { retry: Retry::WhenReleased } => "denied, retry when permits are released".to_owned(),
        Outcome::Denied { retry: Retry::Never } => "denied permanently".to_owned(),
    }
}
