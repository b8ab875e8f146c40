//! A store and the model side by side: every operation is applied to both, and they must agree.

use super::SuiteOptions;
use super::model::Model;
use super::report::Difference;
use crate::{Answer, Ask, Decision, Limit, MaxWait, Outcome, Retry, Store, StoreError, Timestamp};
use std::fmt::Debug;
use std::time::Duration;

/// A store and the model side by side.
pub(super) struct Pair<S> {
    pub(super) store: S,
    pub(super) model: Model,
    pub(super) now: Timestamp,
    pub(super) options: SuiteOptions,
}

/// The decision of both, which was the same.
#[derive(Debug)]
pub(super) struct DecisionPair {
    store: Decision,
    model: Decision,
}

pub(super) type Comparison<T = ()> = Result<T, Difference>;

impl DecisionPair {
    pub(super) fn is_granted(&self) -> bool {
        self.model.is_granted()
    }
}

impl<S: Store> Pair<S> {
    pub(super) fn new(store: S, options: &SuiteOptions) -> Self {
        Self { store, model: Model::default(), now: options.start_time(), options: options.clone() }
    }

    /// Advances the time by `units` milliseconds, rounded to the store's ticks.
    pub(super) fn wait(&mut self, units: u32) {
        self.now = self.now + self.options.unit() * units;
    }

    pub(super) async fn decide(&mut self, asks: &[Ask<'_>], max_wait: MaxWait) -> Comparison<DecisionPair> {
        let operation = || format!("decide {} at {:?}, {max_wait:?}", describe_asks(asks), self.now);
        let model = self.model.decide(asks, self.now, max_wait);
        let store = self.store.decide(asks, self.now, max_wait).await;
        let store = self.compare(operation, &model, store)?;
        Ok(DecisionPair { store, model })
    }

    pub(super) async fn peek(&mut self, asks: &[Ask<'_>], max_wait: MaxWait) -> Comparison {
        let operation = || format!("peek {} at {:?}, {max_wait:?}", describe_asks(asks), self.now);
        let model = self.model.peek(asks, self.now, max_wait);
        let store = self.store.peek(asks, self.now, max_wait).await;
        self.compare(operation, &model, store).map(drop)
    }

    pub(super) async fn refund(&mut self, asks: &[Ask<'_>], both: &DecisionPair) -> Comparison {
        self.model.refund(asks, &both.model, self.now);
        let done = self.store.refund(asks, &both.store, self.now).await;
        self.check_error(|| format!("refund of {}", describe_asks(asks)), done)
    }

    pub(super) async fn charge(&mut self, ask: Ask<'_>) -> Comparison {
        self.model.charge(&ask, self.now);
        let done = self.store.charge(ask, self.now).await;
        self.check_error(|| format!("charge of {}", describe_asks(&[ask])), done)
    }

    pub(super) async fn reset(&mut self, limit: &Limit, key: &[u8]) -> Comparison {
        self.model.reset(limit, key, self.now);
        let done = self.store.reset(limit, key, self.now).await;
        self.check_error(|| format!("reset of {:?} of `{}`", KeyText(key), limit.name()), done)
    }

    /// Asks for one permit at a time until one is denied; returns how many were granted. (At most one hundred.)
    pub(super) async fn exhaust(&mut self, limit: &Limit, key: &[u8]) -> Comparison<usize> {
        for granted in 0..100 {
            if !self.decide(&[Ask::one(limit, key)], MaxWait::NONE).await?.is_granted() {
                return Ok(granted);
            }
        }
        Ok(100)
    }

    /// Reads the status of each key, which changes nothing.
    pub(super) async fn compare_status(&mut self, limit: &Limit, keys: &[&[u8]]) -> Comparison {
        for key in keys {
            self.peek(&[Ask::one(limit, key)], MaxWait::NONE).await?;
        }
        Ok(())
    }

    /// Fails unless `holds` is true; for facts that the model does not have.
    pub(super) fn expect(
        &self,
        holds: bool,
        operation: impl Into<String>,
        expected: impl Debug,
        actual: impl Debug,
    ) -> Comparison {
        let difference = || Difference {
            operation: format!("{} at {:?}", operation.into(), self.now),
            expected: format!("{expected:?}"),
            actual: format!("{actual:?}"),
        };
        if holds { Ok(()) } else { Err(difference()) }
    }

    /// Returns the store's answer, or a failure if it returned an error.
    pub(super) fn check_error<T>(
        &self,
        operation: impl Fn() -> String,
        actual: Result<T, StoreError>,
    ) -> Comparison<T> {
        actual.map_err(|error| Difference {
            operation: format!("{} at {:?}", operation(), self.now),
            expected: "an answer (exclude an unsupported algorithm with `SuiteOptions::without`)".to_owned(),
            actual: error.to_string(),
        })
    }

    fn compare(
        &self,
        operation: impl Fn() -> String,
        model: &Decision,
        store: Result<Decision, StoreError>,
    ) -> Comparison<Decision> {
        let store = self.check_error(&operation, store)?;
        let same = model.answers().len() == store.answers().len()
            && model.answers().iter().zip(store.answers()).all(|(model, store)| self.same(model, store));
        if same {
            return Ok(store);
        }
        let text = |decision: &Decision| decision.answers().iter().map(describe_answer).collect::<Vec<_>>().join("; ");
        Err(Difference { operation: operation(), expected: text(model), actual: text(&store) })
    }

    /// Returns `true` if two answers are equal for this store. The mark of a receipt is specific to each store.
    fn same(&self, model: &Answer, store: &Answer) -> bool {
        let outcomes = match (model.outcome, store.outcome) {
            (Outcome::Granted { wait: a, receipt }, Outcome::Granted { wait: b, receipt: other }) => {
                self.options.same(a, b) && receipt.cost() == other.cost()
            }
            (Outcome::Denied { retry: Retry::After(a) }, Outcome::Denied { retry: Retry::After(b) }) => {
                self.options.same(a, b)
            }
            (Outcome::Denied { retry }, Outcome::Denied { retry: other }) => retry == other,
            _ => false,
        };
        let (a, b) = (model.status(), store.status());
        outcomes && a.limit == b.limit && a.remaining == b.remaining && self.options.same(a.reset, b.reset)
    }
}

/// A key in readable form.
struct KeyText<'a>(&'a [u8]);

impl Debug for KeyText<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.len() {
            0..=40 => write!(f, "\"{}\"", self.0.escape_ascii()),
            long => write!(f, "\"{}...\" ({long} bytes)", self.0[..40].escape_ascii()),
        }
    }
}

pub(super) fn describe_asks(asks: &[Ask<'_>]) -> String {
    let each = |ask: &Ask<'_>| {
        let version = ask.limit.version();
        let version = if version == 0 { String::new() } else { format!(" (version {version})") };
        let max_wait = match ask.max_wait {
            MaxWait::FOREVER => String::new(),
            max_wait => format!(" ({max_wait:?})"),
        };
        format!("{} of `{}`{version} for {:?}{max_wait}", ask.cost.get(), ask.limit.name(), KeyText(ask.key))
    };
    format!("[{}]", asks.iter().map(each).collect::<Vec<_>>().join(", "))
}

fn describe_answer(answer: &Answer) -> String {
    let outcome = match answer.outcome {
        Outcome::Granted { wait: Duration::ZERO, receipt } => format!("granted {}", receipt.cost().get()),
        Outcome::Granted { wait, receipt } => format!("granted {} after {wait:?}", receipt.cost().get()),
        Outcome::Denied { retry: Retry::After(wait) } => format!("denied, retry after {wait:?}"),
        Outcome::Denied { retry: Retry::WhenReleased } => "denied, retry when permits are released".to_owned(),
        Outcome::Denied { retry: Retry::Never } => "denied permanently".to_owned(),
    };
    let status = answer.status();
    format!("{outcome}, {} of {} remaining, reset in {:?}", status.remaining, status.limit, status.reset)
}
