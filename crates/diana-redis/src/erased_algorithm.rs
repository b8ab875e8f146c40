//! A type-erased scripted algorithm, so that limits of different kinds can be in one list.

use crate::args::Args;
use crate::scripted_algorithm::{
    AskArgs, Body, CachedState, Effect, ErasedCachedState, LeaseRequest, Leasing, Numbers, ScriptView,
    ScriptedAlgorithm, StoredState,
};
use crate::scripts::{Module, ModuleSet};
use diana_core::{Answer, Limit, Receipt, Status, Timestamp};
use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

/// A [`ScriptedAlgorithm`], with its parameters as text.
#[derive(Debug)]
pub(crate) struct Erased<A> {
    algorithm: A,
    parameters: String,
    modules: ModuleSet,
}

impl<A: ScriptedAlgorithm> Erased<A> {
    pub(crate) fn new(algorithm: A, kind: usize) -> Self {
        let parameters = format!("{}{}", A::MODULE.letter, algorithm.parameters());
        Self { algorithm, parameters, modules: ModuleSet::one(kind) }
    }
}

/// An [`Erased`] algorithm of any type.
pub(crate) trait ErasedAlgorithm: Debug + Send + Sync {
    fn module(&self) -> &'static Module;
    fn modules(&self) -> ModuleSet;
    fn parameters(&self) -> &str;
    fn take(&self, args: &mut Args, ask: &AskArgs);
    fn charge(&self, args: &mut Args, ask: &AskArgs);
    /// Returns the receipt for a charge, from the state that the script read before it.
    fn charged(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt>;
    fn refund(&self, args: &mut Args, receipt: &Receipt);
    fn extend(&self, args: &mut Args, receipt: &Receipt, permits_for: Duration);
    fn answer(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer>;
    /// Returns the deny cache's entry for the state that a script read, after the effect of the ask.
    fn cache_state(&self, view: &ScriptView, ask: &AskArgs) -> Option<ErasedCachedState>;
    /// Returns the answer from a cached entry at `now`, without effect. `None` if the entry is not sufficient.
    fn answer_from_cache(&self, cached: &ErasedCachedState, ask: &AskArgs, now: Timestamp) -> Option<Answer>;
    /// Migrates `body`, a state of `other`, to these parameters.
    fn migrate(&self, other: &dyn ErasedAlgorithm, body: &Body, now: Timestamp) -> Option<StoredState>;
    /// Returns the stored permits of a key without a state at the time `at` of a change from `other`, under which it
    /// had `stored`.
    fn stored_after_change(&self, other: &dyn ErasedAlgorithm, stored: Option<f64>, at: Timestamp) -> Option<f64>;
    fn algorithm(&self) -> &dyn Any;
    /// Returns the number of permits in use in the state that is written as `body`.
    fn used(&self, body: &Body, now: Timestamp) -> Option<u64>;
    fn leasing(&self) -> Leasing;
    /// Returns `true` if permits are held until they are released, rather than consumed.
    fn holds(&self) -> bool;
    fn lease(&self, args: &mut Args, lease: &LeaseRequest<'_>);
    /// Returns the status of the state that a script read.
    fn status(&self, numbers: Numbers<'_>, now: Timestamp) -> Option<Status>;
    /// Returns the limit with the share of one of `instances`.
    fn divided(&self, limit: &Limit, instances: u64) -> Limit;
}

impl<A: ScriptedAlgorithm> ErasedAlgorithm for Erased<A> {
    fn module(&self) -> &'static Module {
        &A::MODULE
    }

    fn modules(&self) -> ModuleSet {
        self.modules
    }

    fn parameters(&self) -> &str {
        &self.parameters
    }

    fn take(&self, args: &mut Args, ask: &AskArgs) {
        self.algorithm.take_args(args, ask);
    }

    fn charge(&self, args: &mut Args, ask: &AskArgs) {
        self.algorithm.charge_args(args, ask);
    }

    fn charged(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        self.algorithm.charged(numbers, ask, now)
    }

    fn refund(&self, args: &mut Args, receipt: &Receipt) {
        self.algorithm.refund_args(args, receipt);
    }

    fn extend(&self, args: &mut Args, receipt: &Receipt, permits_for: Duration) {
        self.algorithm.extend_args(args, receipt, permits_for);
    }

    fn answer(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        self.algorithm.answer_to(numbers, ask, now, effect)
    }

    fn cache_state(&self, view: &ScriptView, ask: &AskArgs) -> Option<ErasedCachedState> {
        let cached = self.algorithm.cached_state(Numbers(&view.numbers), ask, view.at, view.effect)?;
        let heap_bytes = match &cached {
            CachedState::State(state) => self.algorithm.heap_bytes(state),
            CachedState::Report(_) => 0,
        };
        Some(ErasedCachedState::new(cached, heap_bytes))
    }

    fn answer_from_cache(&self, cached: &ErasedCachedState, ask: &AskArgs, now: Timestamp) -> Option<Answer> {
        match cached.get::<A::State>()? {
            CachedState::State(state) => {
                let outcome = self.algorithm.peek(state, now, ask.cost, ask.max_wait);
                Some(Answer::new(outcome, self.algorithm.status(state, now)))
            }
            CachedState::Report(report) => report.answer(ask, now),
        }
    }

    fn migrate(&self, other: &dyn ErasedAlgorithm, body: &Body, now: Timestamp) -> Option<StoredState> {
        match other.algorithm().downcast_ref::<A>() {
            Some(old) => self.algorithm.migrate(old, body, now),
            // Two kinds of algorithms have only the number of permits in use in common.
            None => Some(self.algorithm.write(&self.algorithm.occupied(other.used(body, now)?, now), now)),
        }
    }

    fn stored_after_change(&self, other: &dyn ErasedAlgorithm, stored: Option<f64>, at: Timestamp) -> Option<f64> {
        self.algorithm.stored_after_change(other.algorithm().downcast_ref::<A>()?, stored, at)
    }

    fn algorithm(&self) -> &dyn Any {
        &self.algorithm
    }

    fn used(&self, body: &Body, now: Timestamp) -> Option<u64> {
        let status = self.algorithm.status(&self.algorithm.read(body, now)?, now);
        Some(status.limit.saturating_sub(status.remaining))
    }

    fn leasing(&self) -> Leasing {
        self.algorithm.leasing()
    }

    fn holds(&self) -> bool {
        A::HOLDS
    }

    fn lease(&self, args: &mut Args, lease: &LeaseRequest<'_>) {
        self.algorithm.lease_args(args, lease);
    }

    fn status(&self, numbers: Numbers<'_>, now: Timestamp) -> Option<Status> {
        Some(self.algorithm.status(&self.algorithm.parse_state(numbers, now)?, now))
    }

    fn divided(&self, limit: &Limit, instances: u64) -> Limit {
        limit.changed_to(self.algorithm.divided(instances))
    }
}
