//! Limits that are not those of rules: a front end brings them along, such as those of Envoy's descriptors.

use super::asks::{AskList, OwnedAsks, Scope, ScopedDecision};
use super::shared_store::InFlightQuery;
use super::{ClThrottleFuture, ClThrottleNow, Engine, EngineState, KeySpace, Verdict};
use diana_core::{Ask, ClThrottle, Cost, Decision, Limit, LocalStore, MaxWait, Query};
use std::sync::Arc;

/// A decision by limits that belong to no rule. Dropping it refunds its charges, unless it is [kept](Self::keep).
#[derive(Debug)]
#[must_use = "dropping it refunds what was charged"]
pub struct LimitsGuard {
    engine: Engine,
    decision: Decision,
    /// The charges that dropping it refunds, if any.
    charged: Option<OwnedAsks>,
    /// Whether this process decided, rather than the shared store.
    is_local: bool,
}

impl Engine {
    /// Decides by limits that are not those of rules, all or nothing and without waiting: in the shared store, if there is
    /// one, else in this process. A cost of zero only asks whether a limit is exceeded. Dropping the future, or the guard,
    /// refunds the charges.
    ///
    /// ```
    /// use diana::rules::{Document, Registry, RuleFile};
    /// use diana::store::{Ask, Limit};
    /// use diana::{Engine, FixedWindow, Quota};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::new(&RuleFile::read(&Document::new("diana.yaml", "rules: []"), &Registry::default())?);
    /// let limit = Limit::new("own", FixedWindow::new(Quota::new(1, Duration::from_secs(3600))?));
    /// drop(engine.acquire_limits(&[Ask::one(&limit, b"alice")]).await);
    /// engine.acquire_limits(&[Ask::one(&limit, b"alice")]).await.keep();
    /// assert!(!engine.acquire_limits(&[Ask::one(&limit, b"alice")]).await.decision().is_granted());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_limits(&self, asks: &[Ask<'_>]) -> LimitsGuard {
        let (now, is_peek) = (self.now(), asks.iter().all(|ask| ask.cost == Cost::ZERO));
        let state = &self.state;
        let shared = match &state.shared {
            Some(shared) if is_peek => {
                shared.query(asks, now, Query::Peek(MaxWait::NONE)).await.ok().map(|decision| (decision, false))
            }
            Some(shared) => {
                let query = InFlightQuery::of_limits(asks, now, shared, &state.counts, &state.background);
                let mut results = query.await.into_iter();
                results.next().map(|(ScopedDecision { decision, is_local, .. }, _)| (decision, is_local))
            }
            None => None,
        };
        let (decision, is_local) = shared.unwrap_or_else(|| {
            let decision = match is_peek {
                true => LocalStore::peek(self.local(), asks, now, MaxWait::NONE),
                false => LocalStore::decide(self.local(), asks, now, MaxWait::NONE),
            };
            (decision, true)
        });
        let is_charged = decision.is_granted() && !is_peek;
        let charged = is_charged.then(|| OwnedAsks::copied(&AskList::from_iter(asks.iter().copied())));
        LimitsGuard { engine: self.clone(), decision, charged, is_local }
    }

    /// Drops the counts and other data of such a limit in this process; counts in a shared store stay.
    pub fn forget_limit(&self, limit: &Limit) {
        LocalStore::forget(self.local(), limit);
        if let Some(shared) = &self.state.shared {
            shared.forget(limit);
        }
    }

    /// Decides one `CL.THROTTLE` call for `key`, as redis-cell does: see [`ClThrottle`]. Rules are not checked.
    ///
    /// The decision is made at once if the counts are in this process. If they are in the shared store and it fails,
    /// this process counts the call. Dropping the future does not undo the call.
    ///
    /// ```
    /// use diana::rules::{Document, Registry, RuleFile};
    /// use diana::{ClThrottle, Engine, KeySpace};
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// let document = Document::new("diana.yaml", "rules: [{name: everyone, limit: 5/s}]");
    /// let engine = Engine::new(&RuleFile::read(&document, &Registry::default())?);
    /// let call = ClThrottle::new(0, 1, 60, 1)?;
    /// assert!(engine.cl_throttle(KeySpace::default(), b"alice", &call).await.is_granted());
    /// assert!(!engine.cl_throttle(KeySpace::default(), b"alice", &call).await.is_granted());
    /// # Ok(())
    /// # }
    /// # futures_util::future::FutureExt::now_or_never(run()).unwrap().unwrap();
    /// ```
    #[inline]
    pub fn cl_throttle(&self, space: KeySpace, key: &[u8], call: &ClThrottle) -> ClThrottleFuture {
        ClThrottleFuture::start(&self.state, space, key, call)
    }

    /// Returns the calls of `space` that are decided at the present time; `None` if their counts are in the shared store.
    ///
    /// For calls that arrive together: the clock is read once for all of them. Each is decided as by
    /// [`cl_throttle`](Self::cl_throttle).
    ///
    /// ```
    /// use diana::rules::{Document, Registry, RuleFile};
    /// use diana::{ClThrottle, Engine, KeySpace};
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: everyone, limit: 5/s}]");
    /// let engine = Engine::new(&RuleFile::read(&document, &Registry::default())?);
    /// let call = ClThrottle::new(0, 1, 60, 1)?;
    /// let calls = engine.cl_throttle_now(KeySpace::default()).ok_or("the counts are in this process")?;
    /// assert!(calls.cl_throttle(b"alice", &call).is_granted());
    /// assert!(!calls.cl_throttle(b"alice", &call).is_granted());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn cl_throttle_now(&self, space: KeySpace) -> Option<ClThrottleNow<'_>> {
        ClThrottleNow::of(&self.state, space)
    }
}

impl EngineState {
    /// Returns `true` if the shared store was unreachable when it returned this decision.
    pub(super) fn is_fallback_decision(&self, decision: &Decision) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.is_fallback(decision))
    }

    /// Returns `true` if the shared store was unreachable when it returned a decision of this verdict.
    pub(super) fn has_fallback_decision(&self, verdict: &Verdict) -> bool {
        verdict.enforced().any(|scoped| {
            matches!(scoped.scope, Scope::Shared | Scope::Look(_)) && self.is_fallback_decision(&scoped.decision)
        })
    }
}

impl LimitsGuard {
    /// Returns the decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Returns `true` if the shared store was unreachable, so that it was decided without it.
    pub fn is_fallback(&self) -> bool {
        self.engine.state.is_fallback_decision(&self.decision)
    }

    /// Keeps the charges.
    pub fn keep(mut self) {
        self.charged = None;
    }
}

impl Drop for LimitsGuard {
    fn drop(&mut self) {
        let Some(charged) = self.charged.take() else { return };
        let state = &self.engine.state;
        match state.shared.as_ref().filter(|_| !self.is_local) {
            None => state.counts.refund(&charged.as_asks(), &self.decision),
            Some(shared) => {
                let refund = Arc::clone(shared).start_refund(&charged.as_asks(), &self.decision, state.counts.now());
                // If the refund fails, the charges still expire with time.
                let _ = state.background.spawn(async move { drop(refund.await) });
            }
        }
    }
}
