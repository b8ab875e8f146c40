//! An algorithm of any kind with one state, for a single limiter.

use crate::{Algorithm, Answer, Cost, MaxWait, Receipt, Refund, Status, Timestamp, WaitMode};
use std::any::Any;
use std::fmt::Debug;

/// An algorithm with one state, type-erased.
pub(crate) trait AnyState: Debug + Send {
    fn take(&mut self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    /// Takes as of the first instant from `since` to `now` at which the limit allows it.
    fn take_since(&mut self, since: Timestamp, now: Timestamp, cost: Cost) -> Answer;
    fn peek(&mut self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer;
    fn charge(&mut self, now: Timestamp, cost: Cost);
    fn refund(&mut self, now: Timestamp, receipt: &Receipt) -> Refund;
    fn refund_rest(&mut self, now: Timestamp, receipt: &Receipt, used: u64) -> Refund;
    fn reset(&mut self, now: Timestamp);
    fn restart(&mut self, now: Timestamp);
    fn status(&mut self, now: Timestamp) -> Status;
    fn wait_mode(&self) -> WaitMode;
    /// Changes to `algorithm` if it is of the same kind; otherwise returns `false`.
    fn change_to(&mut self, algorithm: &dyn Any, now: Timestamp) -> bool;
}

/// An algorithm and one state.
#[derive(Debug)]
pub(crate) struct AlgorithmState<A: Algorithm> {
    algorithm: A,
    state: A::State,
    /// The latest time seen, so that time never goes back.
    latest: Timestamp,
}

impl<A: Algorithm> AlgorithmState<A> {
    pub(crate) fn new(algorithm: A, state: A::State, now: Timestamp) -> Self {
        Self { algorithm, state, latest: now }
    }

    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.latest = self.latest.max(now);
        self.latest
    }
}

impl<A: Algorithm> AnyState for AlgorithmState<A> {
    fn take(&mut self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let now = self.tick(now);
        self.algorithm.answer(&mut self.state, now, cost, max_wait)
    }

    fn take_since(&mut self, since: Timestamp, now: Timestamp, cost: Cost) -> Answer {
        let since = self.tick(since);
        self.algorithm.answer(&mut self.state, since, cost, MaxWait::up_to(now.since(since)))
    }

    // A peek changes nothing, not even the latest time: a late caller may still ask as of an earlier time.
    fn peek(&mut self, now: Timestamp, cost: Cost, max_wait: MaxWait) -> Answer {
        let now = self.latest.max(now);
        let outcome = self.algorithm.peek(&self.state, now, cost, max_wait);
        Answer::new(outcome, self.algorithm.status(&self.state, now))
    }

    fn charge(&mut self, now: Timestamp, cost: Cost) {
        let now = self.tick(now);
        self.algorithm.charge(&mut self.state, now, cost);
    }

    fn refund(&mut self, now: Timestamp, receipt: &Receipt) -> Refund {
        let now = self.tick(now);
        self.algorithm.refund(&mut self.state, now, receipt)
    }

    fn refund_rest(&mut self, now: Timestamp, receipt: &Receipt, used: u64) -> Refund {
        let now = self.latest.max(now);
        self.algorithm.refund_rest(&mut self.state, now, receipt, used)
    }

    fn reset(&mut self, now: Timestamp) {
        let now = self.tick(now);
        self.state = self.algorithm.fresh(now);
    }

    fn restart(&mut self, now: Timestamp) {
        self.latest = now;
        self.state = self.algorithm.fresh(now);
    }

    fn status(&mut self, now: Timestamp) -> Status {
        self.algorithm.status(&self.state, self.latest.max(now))
    }

    fn wait_mode(&self) -> WaitMode {
        Algorithm::wait_mode(&self.algorithm)
    }

    fn change_to(&mut self, algorithm: &dyn Any, now: Timestamp) -> bool {
        let Some(same_kind) = algorithm.downcast_ref::<A>() else { return false };
        if *same_kind == self.algorithm {
            return true;
        }
        let now = self.tick(now);
        let old = std::mem::replace(&mut self.algorithm, same_kind.clone());
        self.algorithm.rescale(&mut self.state, &old, now);
        true
    }
}
