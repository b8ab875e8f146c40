//! The trait that connects a diana-core algorithm to its Lua script.

use crate::args::Args;
use crate::scripts::Module;
use diana_core::{Algorithm, Answer, Cost, MaxWait, Outcome, Receipt, Retry, Status, Timestamp};
use redis::Value;
use std::any::Any;
use std::time::Duration;

/// An algorithm that has a script.
///
/// The script stores the state and decides; the reported values are computed in this process from the state that the
/// script read, by the algorithm itself. So remaining permits and retry times are computed in one place, and a script
/// whose decision differs from the algorithm's is detected (`tests/it/conformance.rs`).
pub(crate) trait ScriptedAlgorithm: Algorithm {
    /// Its Lua file.
    const MODULE: Module;

    /// Returns why a limit with these parameters can't be stored on Redis, or `None` if it can.
    fn unsupported_reason(&self) -> Option<String> {
        None
    }

    /// Returns the parameters as text without blanks, which is written with each state: a process that finds different
    /// parameters uses them to migrate the state.
    fn parameters(&self) -> String;

    /// Parses the algorithm from its parameters.
    fn from_parameters(text: &str) -> Option<Self>;

    /// Adds the script's arguments to take.
    fn take_args(&self, args: &mut Args, ask: &AskArgs);

    /// Adds the script's arguments to charge.
    fn charge_args(&self, args: &mut Args, ask: &AskArgs);

    /// Returns the receipt for a charge of `ask`, from the state that the script read before it. The receipt is used
    /// to refund the part of the charge that turns out to be unused. `None` where no receipt is possible.
    ///
    /// A charge that could have been a grant has the receipt of that grant.
    fn charged(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        let ask = AskArgs { max_wait: MaxWait::FOREVER, ..*ask };
        self.answer_to(numbers, &ask, now, Effect::Taken)?.receipt()
    }

    /// Adds the script's arguments to refund.
    fn refund_args(&self, args: &mut Args, receipt: &Receipt);

    /// Whether permits are held until they are released, rather than consumed: then the time of their release is
    /// unknown, and long-running holders must extend them.
    const HOLDS: bool = false;

    /// Adds the script's arguments to extend the permits of `receipt`, where permits are [held](Self::HOLDS).
    fn extend_args(&self, _args: &mut Args, _receipt: &Receipt, _permits_for: Duration) {}

    /// Parses the state that the script read. Not needed where [`answer_to`](Self::answer_to) does not use it.
    fn parse_state(&self, _numbers: Numbers<'_>, _now: Timestamp) -> Option<Self::State> {
        None
    }

    /// Computes the algorithm's answer from the state that the script read. `None` if the state is invalid.
    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        Some(self.answer_to_state(self.parse_state(numbers, now)?, ask, now, effect))
    }

    /// Computes the algorithm's answer from `state`.
    fn answer_to_state(&self, mut state: Self::State, ask: &AskArgs, now: Timestamp, effect: Effect) -> Answer {
        match effect {
            Effect::Taken => Algorithm::answer(self, &mut state, now, ask.cost, ask.max_wait),
            Effect::None => Answer::new(self.peek(&state, now, ask.cost, ask.max_wait), self.status(&state, now)),
        }
    }

    /// Returns the deny cache's entry for the state that a script read, after the effect of the ask. `None` if the
    /// state is not sufficient.
    fn cached_state(
        &self,
        numbers: Numbers<'_>,
        ask: &AskArgs,
        now: Timestamp,
        effect: Effect,
    ) -> Option<CachedState<Self::State>> {
        let mut state = self.parse_state(numbers, now)?;
        if effect == Effect::Taken {
            let _ = self.take(&mut state, now, ask.cost, ask.max_wait);
        }
        Some(CachedState::State(state))
    }

    /// Parses the state that was written as `body`.
    fn read(&self, body: &Body, now: Timestamp) -> Option<Self::State>;

    /// Converts `state` to its stored form.
    fn write(&self, state: &Self::State, now: Timestamp) -> StoredState;

    /// Returns the stored permits of a key without a state at the time `at` of a change from `old`, under which it had
    /// `stored`: as if the key had not expired. `None` where that equals a new key's.
    fn stored_after_change(&self, _old: &Self, _stored: Option<f64>, _at: Timestamp) -> Option<f64> {
        None
    }

    /// Returns how blocks of permits are leased, if they can be.
    fn leasing(&self) -> Leasing {
        Leasing::None
    }

    /// Adds the script's arguments to lease, where the script does it.
    fn lease_args(&self, _args: &mut Args, _lease: &LeaseRequest<'_>) {}

    /// Migrates `body`, a state of `old`, to these parameters.
    fn migrate(&self, old: &Self, body: &Body, now: Timestamp) -> Option<StoredState> {
        self.migrate_state(old, body, now)
    }

    /// Migrates like [`migrate`](Self::migrate), for algorithms that store only their state.
    fn migrate_state(&self, old: &Self, body: &Body, now: Timestamp) -> Option<StoredState> {
        let mut state = old.read(body, now)?;
        self.rescale(&mut state, old, now);
        Some(self.write(&state, now))
    }

    /// Returns the share of one instance when `instances` use local counts: at least 1.
    #[must_use]
    fn divided(&self, instances: u64) -> Self;
}

/// Returns the same answer with another mark on its receipt, if it has one.
pub(crate) fn with_mark(mut answer: Answer, mark: u128) -> Answer {
    if let Outcome::Granted { receipt, .. } = &mut answer.outcome {
        *receipt = receipt.with_mark(mark);
    }
    answer
}

/// One ask, as passed to an algorithm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskArgs {
    pub(crate) cost: Cost,
    /// The maximum wait in whole microseconds, Redis's resolution.
    pub(crate) max_wait: MaxWait,
    /// The time of this process's clock: an estimate of Redis's, for algorithms that need the date.
    pub(crate) local_now: Timestamp,
    /// A number that no other ask has.
    pub(crate) ticket: u128,
    /// How long held permits are counted if they are not released.
    pub(crate) permits_for: Duration,
    /// The stored permits of a key without a state, if they differ from a new key's: at the time of a change.
    pub(crate) stored: Option<f64>,
    /// The minimum time for which the key is stored after a grant.
    pub(crate) min_expiry: Duration,
}

/// Whether a request took its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Taken,
    None,
}

/// The deny cache's entry for a state.
#[derive(Debug)]
pub(crate) enum CachedState<S> {
    /// The whole state.
    State(S),
    /// The reported values, where the script does not return the state.
    Report(Report),
}

/// A report on a state that the script does not return: valid until the first permits in use are returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) status: Status,
    /// When it was reported.
    pub(crate) at: Timestamp,
    /// How long it is valid: until the first permits in use leave the window.
    pub(crate) valid_for: Duration,
    /// A cost that is denied, and until when.
    pub(crate) denied: Option<(Cost, Duration)>,
}

impl Report {
    /// Returns the report at `now`: times are reduced by the elapsed time. `None` if the report is not sufficient.
    pub(crate) fn answer(&self, ask: &AskArgs, now: Timestamp) -> Option<Answer> {
        let (passed, cost) = (now.since(self.at), ask.cost);
        if passed >= self.valid_for {
            return None;
        }
        let mut status = self.status;
        status.reset = status.reset.saturating_sub(passed);
        let outcome = if cost.get() > status.limit {
            Outcome::never()
        } else if cost.get() <= status.remaining {
            Outcome::granted(Receipt::new(cost, now))
        } else {
            let (_, until) = self.denied.filter(|(denied, _)| *denied == cost)?;
            Outcome::Denied { retry: Retry::After(until.checked_sub(passed).filter(|after| !after.is_zero())?) }
        };
        Some(Answer::new(outcome, status))
    }
}

/// The deny cache's entry for a state, type-erased.
#[derive(Debug)]
pub(crate) struct ErasedCachedState {
    state: Box<dyn Any + Send + Sync>,
    heap_bytes: usize,
}

impl ErasedCachedState {
    pub(crate) fn new<S: Send + Sync + 'static>(cached_state: CachedState<S>, heap_bytes: usize) -> Self {
        Self { state: Box::new(cached_state), heap_bytes }
    }

    pub(crate) fn get<S: 'static>(&self) -> Option<&CachedState<S>> {
        self.state.downcast_ref()
    }

    /// Returns the heap memory of the state in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

/// How an algorithm leases blocks of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leasing {
    /// The algorithm leases no permits.
    None,
    /// The state records each block until it ends, so that permits refilled in the meantime are not granted twice.
    ByScript,
    /// A block is taken like a request of that cost. Unspent permits are refunded, as long as the window lasts.
    ByTaking,
}

/// A call to lease a block, and to report the use of other blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseRequest<'a> {
    pub(crate) id: u128,
    pub(crate) duration: Duration,
    /// The leases that have ended.
    pub(crate) ended: &'a [EndedLease],
    /// The possible numbers of permits of the block, the largest first; empty to lease no block.
    pub(crate) sizes: &'a [u64],
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedLease {
    pub(crate) id: u128,
    pub(crate) spent: u64,
}

/// The state that a script read, as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a>(pub(crate) &'a [Value]);

impl Numbers<'_> {
    /// Returns the number at `index`, if it is an integer.
    pub(crate) fn whole(&self, index: usize) -> Option<u64> {
        match self.0.get(index)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Returns the text at `index`.
    pub(crate) fn text(&self, index: usize) -> Option<&str> {
        match self.0.get(index)? {
            Value::BulkString(text) => std::str::from_utf8(text).ok(),
            _ => None,
        }
    }

    /// Returns the number at `index`, if it is finite. Scripts must send it as text: Redis truncates numbers to integers.
    pub(crate) fn real(&self, index: usize) -> Option<f64> {
        self.text(index)?.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

/// A state as the script read it, and the effect of the script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptView {
    /// When, by Redis's clock.
    pub(crate) at: Timestamp,
    pub(crate) numbers: Vec<Value>,
    pub(crate) effect: Effect,
}

/// The content of a key, without the parameters and the number of their configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Text(String),
    /// Members of a sorted set, each with its score.
    Set(Vec<(String, String)>),
}

/// A state to write.
#[derive(Clone, Debug)]
pub(crate) struct StoredState {
    /// `None` if it equals that of a new key.
    pub(crate) body: Option<Body>,
    /// When it will equal that of a new key, in microseconds; `None` for never.
    pub(crate) fresh_at: Option<u64>,
}
