//! Combines rules and stores: one decision per request.
//!
//! # The life of a request
//! 1. The engine takes a snapshot of the active rules, so that no request sees a half-applied reload.
//! 2. The rule set returns the rules that match the request, with the key and the cost of each ([`RuleSet::find`]).
//! 3. A rule that denies regardless of its counts (`deny`, `missing: deny`) ends the decision; nothing is charged.
//!    So does a rule that is charged after the response (`count`), if its count is used up.
//! 4. The limits that are counted in this process are checked, all or nothing; this needs no I/O.
//! 5. If they grant the request, the shared limits are checked, all or nothing. If these deny it, or the caller drops
//!    the future, the charges of step 4 are refunded.
//! 6. If all grant it, the shadow rules are checked, each on its own. They count like active rules but deny no request.
//!
//! # What always holds (tests/)
//! - Never more is granted than each limit allows, also while rules change (`reload.rs`).
//! - A request that is denied or cancelled has charged nothing in the end (`local_and_shared.rs`, `cancellation.rs`),
//!   if a runtime is available to receive the shared store's response.

mod actual_cost;
mod asks;
mod charge_other_rules;
mod cl_throttle;
mod count_by_status;
mod decide;
mod explain;
mod future;
mod key_admin;
mod local_counts;
mod options;
mod own_limits;
mod permit;
mod rule_limiter;
mod shared_store;
mod snapshot;
mod verdict;
mod wait_queue;

use crate::RuleSet;
use crate::overload::{LoadMeter, Sheddings};
use crate::ruleset::{Move, RuleNotCallable};
pub use actual_cost::ActualCost;
use arc_swap::ArcSwap;
use asks::Scope;
use cl_throttle::ClThrottleLimits;
pub use cl_throttle::{ClThrottleFuture, ClThrottleNow, KeySpace};
pub use decide::DecideMode;
use diana_core::{Ask, Cost, Limit, LocalStore, MaxWait, MemoryStore, Store, Timestamp};
use diana_rules::{Attributes, RuleFile};
pub use explain::{Explanation, PermissionExplanation, RuleExplanation};
pub use future::AcquireFuture;
pub use key_admin::{KeyAdminError, KeyChange, KeyOperation, KeyStatus, LimitStatus};
use local_counts::LocalCounts;
pub use options::EngineOptions;
pub use own_limits::LimitsGuard;
use parking_lot::Mutex;
pub use permit::{Denial, Permit};
pub use rule_limiter::RuleLimiter;
use shared_store::{Background, HeldLeases, SharedStore};
pub use snapshot::{Snapshot, SnapshotError, SnapshotSize};
use std::fmt;
use std::sync::{Arc, Weak};
use verdict::RecycledVerdict;
pub use verdict::{CheckedLimit, LimitedBy, LoggedRequest, Reason, ResponseClass, Verdict};

/// Decides about requests by rules, with counts in this process and, optionally, in a shared store. Cloning is cheap;
/// clones share their state.
#[derive(Clone)]
pub struct Engine {
    rules: Arc<ArcSwap<ActiveRules>>,
    state: Arc<EngineState>,
}

/// A handle that does not keep an engine alive.
#[derive(Clone)]
pub struct WeakEngine {
    rules: Weak<ArcSwap<ActiveRules>>,
}

impl WeakEngine {
    /// Returns the engine, unless all its clones were dropped.
    pub fn upgrade(&self) -> Option<Engine> {
        let rules = self.rules.upgrade()?;
        let state = Arc::clone(&rules.load().state);
        Some(Engine { rules, state })
    }
}

impl fmt::Debug for WeakEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakEngine").finish_non_exhaustive()
    }
}

/// The active rules and the state of their counts, for decisions and for permits, which may outlive the engine.
struct ActiveRules {
    rules: Arc<RuleSet>,
    state: Arc<EngineState>,
}

/// The state that all clones of an engine share, for any rules.
struct EngineState {
    counts: Arc<LocalCounts>,
    shared: Option<Arc<dyn SharedStore>>,
    /// Finishes in-flight queries of cancelled requests.
    background: Background,
    /// The leases that running requests hold in the shared store.
    leases: Arc<HeldLeases>,
    load: LoadMeter,
    sheddings: Sheddings,
    cl_throttle_limits: ClThrottleLimits,
    /// Locked while the rules change. Removed limits are forgotten twice, the second time at the next change: an
    /// in-flight request may have used them once more.
    removed: Mutex<Vec<Limit>>,
    /// Locked while a snapshot is written.
    saving: Mutex<()>,
}

impl Engine {
    /// Creates an engine with the rules of a file; all counts are in this process.
    pub fn new(file: &RuleFile) -> Self {
        EngineOptions::of(file).build(file)
    }

    /// Creates an engine with the rules of a file; `store: shared` limits are counted in the shared store.
    pub fn with_shared(file: &RuleFile, shared: impl Store + 'static) -> Self {
        EngineOptions::of(file).build_shared(file, shared)
    }

    /// Decides about a request, and waits as long as its rules require: a rule with `wait` queues it in FIFO order, for each
    /// count up to the rule's `queue` (1,000 by default), if its algorithm can't predict when it will be granted (windows,
    /// logs, `concurrent`).
    ///
    /// Attributes are read and local limits are checked immediately; the future only waits for the shared store and the
    /// rules. Dropping it leaves the queue and refunds all charges: local ones immediately, shared ones once the store has
    /// responded. That response is awaited by a background task in a tokio runtime: the one in which the engine was
    /// created, or the one in which the future is dropped. Without a runtime, shared charges expire with time.
    ///
    /// ```
    /// use diana::Engine;
    /// use diana::rules::attributes::SyntheticRequest;
    /// use diana::rules::{Document, Registry, RuleFile};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: reports, concurrent: 1}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let request = SyntheticRequest::new("GET", "/report");
    ///
    /// let running = engine.acquire(&request).await?;
    /// assert!(engine.acquire(&request).await.is_err(), "the first one still runs");
    /// drop(running);
    /// assert!(engine.acquire(&request).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[inline]
    pub fn acquire(&self, request: &dyn Attributes) -> AcquireFuture {
        self.decide(&[request], DecideMode::Queue)
    }

    /// Decides about several requests together, all or nothing, like [`acquire`](Self::acquire): each is matched by itself,
    /// and a rule that matches several of them with the same key is charged once, at the highest cost.
    ///
    /// [`Verdict::limits_of`] has the limits of each. Requests that stand for 0 hits are not charged.
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    pub fn acquire_all(&self, requests: &[&dyn Attributes]) -> AcquireFuture {
        self.decide(requests, DecideMode::Queue)
    }

    /// Decides about a call by one named rule, and waits as long as it requires, like [`acquire`](Self::acquire). Other rules
    /// are not checked. See [`RuleSet::find_named`](crate::RuleSet::find_named) for the parts of the rule that apply.
    ///
    /// ```
    /// use diana::Engine;
    /// use diana::rules::{Attribute, Attributes, Document, Registry, RuleFile};
    /// use std::borrow::Cow;
    ///
    /// struct Sms<'a> {
    ///     to: &'a str,
    /// }
    ///
    /// impl Attributes for Sms<'_> {
    ///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
    ///         matches!(attribute, Attribute::Named(name) if &**name == "phone").then_some(Cow::Borrowed(self.to))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: sms, match: {call: phone}, by: phone, limit: 1/min}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    ///
    /// assert!(engine.acquire_by("sms", &Sms { to: "555-1234" })?.await.is_ok());
    /// assert!(engine.acquire_by("sms", &Sms { to: "555-1234" })?.await.is_err());
    /// assert!(engine.acquire_by("mms", &Sms { to: "555-1234" }).is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    pub fn acquire_by(&self, rule: &str, call: &dyn Attributes) -> Result<AcquireFuture, RuleNotCallable> {
        self.decide_by(rule, call, DecideMode::Queue)
    }

    /// Decides about requests: the one way to all decisions.
    ///
    /// ```
    /// use diana::rules::attributes::SyntheticRequest;
    /// use diana::rules::{Document, Registry, RuleFile};
    /// use diana::{DecideMode, Engine};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = Document::new("diana.yaml", "rules: [{name: reports, limit: 1/h}]");
    /// let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
    /// let report = SyntheticRequest::new("GET", "/report");
    /// assert!(engine.decide(&[&report], DecideMode::Peek).await.is_ok());
    /// assert!(engine.decide(&[&report], DecideMode::Deny).await.is_ok(), "the peek took nothing");
    ///
    /// assert!(engine.decide(&[&report], DecideMode::Peek).await.is_err());
    /// assert!(engine.decide(&[&report.hits(0)], DecideMode::Peek).await.is_ok(), "used up, but not exceeded");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    #[inline]
    pub fn decide(&self, requests: &[&dyn Attributes], mode: DecideMode) -> AcquireFuture {
        let mut verdict = self.new_verdict();
        verdict.find(requests, mode.purpose());
        AcquireFuture::decide(self, verdict, mode)
    }

    /// Decides about a call by one named rule, like [`acquire_by`](Self::acquire_by).
    ///
    /// # Panics
    /// If it must wait and there is no tokio runtime with a timer.
    pub fn decide_by(
        &self,
        rule: &str,
        call: &dyn Attributes,
        mode: DecideMode,
    ) -> Result<AcquireFuture, RuleNotCallable> {
        let mut verdict = self.new_verdict();
        verdict.find_by(rule, call, mode.purpose())?;
        Ok(AcquireFuture::decide(self, verdict, mode))
    }

    /// Returns an empty verdict by the active rules.
    #[inline]
    fn new_verdict(&self) -> RecycledVerdict {
        Verdict::start(self.rules.load(), self.now(), self.state.local_scope())
    }

    /// Returns `true` if the shared store was unreachable, so that a part of the verdict was decided without it.
    pub fn is_fallback(&self, verdict: &Verdict) -> bool {
        verdict.is_fallback() || self.state.has_fallback_decision(verdict)
    }

    /// Returns one rule as a limiter.
    ///
    /// # Errors
    /// No rule has this name.
    pub fn limiter(&self, rule: &str) -> Result<RuleLimiter, RuleNotCallable> {
        if self.with_rules(|rules| rules.named(rule).is_none()) {
            return Err(RuleNotCallable::Unknown { rule: rule.to_owned() });
        }
        Ok(RuleLimiter::new(self.clone(), rule))
    }

    /// Replaces the active rules by those of `file`, atomically. Limits that stay or only change keep their counts;
    /// in-flight requests finish under the rules that they started with. Queued requests are checked again by the new
    /// rules of the same names.
    pub fn set_rules(&self, file: &RuleFile) {
        let state = &*self.state;
        let mut removed = state.removed.lock();
        let before = self.rules();
        let after = before.changed_to(file);
        let newly_removed = before.limits_removed_in(&after);
        if let Some(shared) = &state.shared {
            // While other processes still use the old rules, the higher revision is valid for all that share a limit.
            shared.configure(file.revision);
        }
        self.move_keys(&before.moves_to(&after));
        state.sheddings.set_rules(file);
        self.rules.store(Arc::new(ActiveRules { rules: Arc::new(after), state: Arc::clone(&self.state) }));
        for limit in removed.iter().chain(&newly_removed) {
            LocalStore::forget(self.local(), limit);
            if let Some(shared) = &state.shared {
                shared.forget(limit);
            }
        }
        *removed = newly_removed;
        // Queued requests switch to the new rules.
        state.counts.queues.wake_all();
    }

    /// Migrates the usage of keys whose limit changes. A previous limit of a key may still have some of it, so the
    /// maximum of the two counts is taken, not their sum.
    fn move_keys(&self, moves: &[Move<'_>]) {
        let now = self.now();
        let status = |limit, key: &[u8]| {
            let peeked = LocalStore::peek(self.local(), &[Ask::one(limit, key)], now, MaxWait::NONE);
            peeked.answers().first().map(diana_core::Answer::status)
        };
        for Move { key, from, to } in moves {
            let (Some(before), Some(after)) = (status(from, key), status(to, key)) else { continue };
            let used = (before.limit - before.remaining).max(after.limit - after.remaining).min(after.limit);
            LocalStore::reset(self.local(), to, key, now);
            if let Ok(used) = Cost::new(used) {
                LocalStore::charge(self.local(), Ask::new(to, key, used), now);
            }
        }
    }

    /// Returns a handle that does not keep the engine alive; any clone does.
    pub fn downgrade(&self) -> WeakEngine {
        WeakEngine { rules: Arc::downgrade(&self.rules) }
    }

    /// Returns the active rules.
    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.rules.load().rules)
    }

    /// Calls `read` with the active rules: cheaper than [`rules`](Self::rules) for a look at them.
    pub fn with_rules<T>(&self, read: impl FnOnce(&RuleSet) -> T) -> T {
        read(&self.rules.load().rules)
    }

    /// Returns the store of this process.
    pub fn local(&self) -> &MemoryStore {
        &self.state.counts.store
    }

    /// Returns the load meter that `load` rules read; the embedding program reports the machine's load to it.
    pub fn load(&self) -> &LoadMeter {
        &self.state.load
    }

    /// Returns `true` if `store: shared` limits are counted in a shared store.
    pub fn has_shared(&self) -> bool {
        self.state.shared.is_some()
    }

    /// Returns the shared store, if there is one and it is of this type.
    pub fn shared<S: Store + 'static>(&self) -> Option<&S> {
        self.state.shared.as_ref()?.as_any().downcast_ref()
    }

    /// Returns the runtime for background tasks: the one in which the engine was created if that is multi-threaded,
    /// else the current one.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.state.background.runtime()
    }

    /// Blocks this thread until `time` by the engine's clock.
    #[cfg(feature = "macros")]
    pub(crate) fn park_until(&self, time: Timestamp) {
        self.state.counts.park_until(time);
    }

    /// Logs, for each rule, the denials of the last minute that were not logged at once. Call it every few seconds; it also
    /// frees the memory of keys that were not seen for an hour.
    pub fn log_denied_minutes(&self) {
        verdict::log_denied_minutes(&self.rules(), self.now());
    }

    /// Waits until all background tasks are done; call it before a program ends, since its runtime would cancel them.
    pub async fn background_tasks_finished(&self) {
        self.state.background.finished().await;
    }

    /// Returns the time by the engine's clock.
    pub fn now(&self) -> Timestamp {
        self.state.counts.now()
    }
}

impl EngineState {
    /// Returns which queries are decided in this process: all of them if there is no shared store.
    #[inline]
    fn local_scope(&self) -> Scope {
        if self.shared.is_some() { Scope::Local } else { Scope::Everything }
    }
}

impl fmt::Debug for ActiveRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.fmt(f)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules();
        f.debug_struct("Engine")
            .field("rules", &rules.rules().len())
            .field("has_shared", &self.has_shared())
            .finish_non_exhaustive()
    }
}
