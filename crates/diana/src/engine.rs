//! Rules and stores together: one decision for one request.
//!
//! # The life of a request
//! 1. The rules in force are taken once, so that no request sees half of a change.
//! 2. They are asked which of them the request is about, whose it is, and what it costs ([`RuleSet::find`]).
//! 3. A rule that refuses whatever its counts are (`deny`, `missing: deny`) ends it here; nothing is charged.
//! 4. The limits that are counted here are asked, all or nothing; they are free.
//! 5. If they grant it, those that are shared are asked, all or nothing. If these refuse, or nobody waits for the answer any
//!    more, what the first took is given back.
//! 6. If all grant it, the shadow rules are asked, each on its own. They count as if they were in force, and refuse nobody.
//!
//! # What always holds (tests/)
//! - Never more is granted than each limit allows, also while rules change (`reload.rs`).
//! - A request that is refused, or given up, has charged nothing in the end (`mixed.rs`).

mod asks;
mod explain;
mod options;
mod verdict;

use arc_swap::ArcSwap;
use asks::{Asks, Part};
use diana_core::{Clock, Decision, Limit, LocalStore, MemoryStore, Patience, Store, SystemClock, Timestamp};
use diana_rules::{Attributes, Found, Home, Mode, RuleFile, RuleSet};
pub use explain::{Explanation, RuleExplanation};
pub use options::EngineOptions;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use verdict::Shadow;
pub use verdict::{Asked, Reason, Verdict};

/// Decides about requests by rules. `S` is the store that many processes share, if there is one.
pub struct Engine<S = MemoryStore> {
    rules: ArcSwap<RuleSet>,
    local: MemoryStore,
    shared: Option<S>,
    clock: Option<Arc<dyn Clock>>,
    /// Held while the rules change. Limits that are gone are forgotten twice, the second time with the next change: a request
    /// that was under way may have asked for them once more.
    changing: Mutex<Vec<Limit>>,
}

impl Engine {
    /// The rules of a file, with counts in this process alone.
    pub fn new(file: &RuleFile) -> Self {
        EngineOptions::of(file).build(file)
    }
}

impl<S: Store> Engine<S> {
    /// The rules of a file, with the counts of `store: shared` in a store that many processes share.
    pub fn with_shared(file: &RuleFile, shared: S) -> Self {
        EngineOptions::of(file).build_shared(file, shared)
    }

    /// Decides about one request: whether it may go on, after which wait, or why not.
    ///
    /// Asking for the attributes, and all that is counted here, is done at once; the future is only for the shared store.
    /// Dropping it gives back what was taken.
    pub fn decide<'e>(&'e self, request: &dyn Attributes) -> impl Future<Output = Verdict> + Send + use<'e, S> {
        let begun = GivesBack { engine: self, verdict: Some(self.begin(request)) };
        async move { self.go_on(begun).await }
    }

    /// What can be said without the shared store.
    fn begin(&self, request: &dyn Attributes) -> Verdict {
        let rules = self.rules.load_full();
        let mut found = Found::default();
        rules.find(request, &mut found);
        let now = self.now();
        let mut verdict = Verdict::new(rules, found, now, self.here());
        for refused in verdict.found().refused() {
            let Some(rule) = verdict.rules().rule(refused.rule) else { continue };
            match rule.rule().mode {
                Mode::Shadow => rule.count_shadow_refusal(),
                Mode::Enforced => {
                    let refused = *refused;
                    verdict.refuse(refused);
                    return verdict;
                }
            }
        }
        let asks = Asks::of(&verdict, verdict.here);
        let decision = (!asks.is_empty()).then(|| LocalStore::decide(&self.local, &asks, now, Patience::FOREVER));
        drop(asks);
        if let Some(decision) = decision {
            verdict.local = decision;
        }
        verdict
    }

    /// What the shared store says, and the shadows.
    async fn go_on(&self, mut begun: GivesBack<'_, S>) -> Verdict {
        if let (true, Some(shared)) = (begun.verdict().is_granted(), &self.shared) {
            let asks = Asks::of(begun.verdict(), Part::Shared);
            if !asks.is_empty() {
                let now = begun.verdict().at();
                let (decision, here) = match shared.decide(&asks, now, Patience::FOREVER).await {
                    Ok(decision) => (decision, false),
                    // A store that fails is no reason to let everybody in, or nobody.
                    Err(_) => (LocalStore::decide(&self.local, &asks, now, Patience::FOREVER), true),
                };
                drop(asks);
                if !decision.is_granted() {
                    begun.give_back_local();
                }
                begun.verdict_mut().shared = Some(Box::new(verdict::SharedDecision { decision, here }));
            }
        }
        if begun.verdict().is_granted() && begun.verdict().has_shadows() {
            self.ask_shadows(&mut begun).await;
        }
        begun.done()
    }

    /// Asks each shadow rule as if it were in force.
    async fn ask_shadows(&self, begun: &mut GivesBack<'_, S>) {
        let shadows = begun.verdict().found().applied().iter().enumerate();
        let shadows = shadows.filter(|(_, applied)| applied.mode == Mode::Shadow);
        for nth in shadows.map(|(nth, _)| nth).collect::<SmallVec<[usize; 4]>>() {
            let verdict = begun.verdict();
            let (asks, now) = (Asks::of(verdict, Part::Shadow(nth)), verdict.at());
            let home = verdict.found().applied().get(nth).map_or(Home::Local, |applied| applied.home);
            let asked = match (&self.shared, home) {
                (Some(shared), Home::Shared) => {
                    shared.decide(&asks, now, Patience::FOREVER).await.ok().map(|made| (made, false))
                }
                _ => None,
            };
            let (decision, here) =
                asked.unwrap_or_else(|| (LocalStore::decide(&self.local, &asks, now, Patience::FOREVER), true));
            drop(asks);
            let rule = begun
                .verdict()
                .found()
                .applied()
                .get(nth)
                .and_then(|applied| begun.verdict().rules().rule(applied.rule));
            if let (Some(rule), false) = (rule, decision.is_granted()) {
                rule.count_shadow_refusal();
            }
            begun.verdict_mut().shadows.push(Shadow { nth, decision, here });
        }
    }

    /// Which of the asks are decided in this process: all of them, if nobody shares.
    fn here(&self) -> Part {
        if self.shared.is_some() { Part::Local } else { Part::Everything }
    }

    /// Says that a granted request is done: what it only held while it ran (`concurrent`) is given back.
    pub async fn finish(&self, verdict: Verdict) {
        self.give_back(&verdict, Return::WhatIsHeld).await;
    }

    /// Gives back all that a granted request took, as far as time has not: it was not carried out.
    pub async fn refund(&self, verdict: Verdict) {
        self.give_back(&verdict, Return::Everything).await;
    }

    async fn give_back(&self, verdict: &Verdict, what: Return) {
        if !verdict.is_granted() {
            return;
        }
        let now = self.now();
        self.give_back_here(verdict, verdict.here, &verdict.local, what, now);
        if let Some(made) = &verdict.shared {
            self.give_back_there(verdict, Part::Shared, &made.decision, made.here, what, now).await;
        }
        for shadow in &verdict.shadows {
            self.give_back_there(verdict, Part::Shadow(shadow.nth), &shadow.decision, shadow.here, what, now).await;
        }
    }

    fn give_back_here(&self, verdict: &Verdict, part: Part, made: &Decision, what: Return, now: Timestamp) {
        let (asks, made) = Asks::given_back(verdict, part, made, what);
        if !asks.is_empty() {
            LocalStore::refund(&self.local, &asks, &made, now);
        }
    }

    async fn give_back_there(
        &self,
        verdict: &Verdict,
        part: Part,
        made: &Decision,
        here: bool,
        what: Return,
        now: Timestamp,
    ) {
        match &self.shared {
            Some(shared) if !here => {
                let (asks, made) = Asks::given_back(verdict, part, made, what);
                if !asks.is_empty() {
                    // What can't be given back now comes back by itself in time.
                    let _ = shared.refund(&asks, &made, now).await;
                }
            }
            _ => self.give_back_here(verdict, part, made, what, now),
        }
    }

    /// Puts the rules of `file` in force, all at once. Limits that stay, or only change, keep their counts; requests that are
    /// under way go on under the rules that they began with.
    pub fn set_rules(&self, file: &RuleFile) {
        let mut gone = self.changing.lock();
        let before = self.rules.load_full();
        let after = before.changed_to(file);
        let newly_gone = before.limits_gone_in(&after);
        self.rules.store(Arc::new(after));
        for limit in gone.iter().chain(&newly_gone) {
            LocalStore::forget(&self.local, limit);
            if let Some(shared) = &self.shared {
                shared.forget(limit);
            }
        }
        *gone = newly_gone;
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.rules.load_full()
    }

    /// The counts of this process.
    pub fn local(&self) -> &MemoryStore {
        &self.local
    }

    /// The store that many processes share, if there is one.
    pub fn shared(&self) -> Option<&S> {
        self.shared.as_ref()
    }

    fn now(&self) -> Timestamp {
        match &self.clock {
            None => SystemClock.now(),
            Some(clock) => clock.now(),
        }
    }
}

/// What of a granted request is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Return {
    Everything,
    WhatIsHeld,
}

/// A verdict that is not whole yet: whoever drops it gives back what was taken here.
struct GivesBack<'e, S: Store> {
    engine: &'e Engine<S>,
    verdict: Option<Verdict>,
}

impl<S: Store> GivesBack<'_, S> {
    fn verdict(&self) -> &Verdict {
        self.verdict.as_ref().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    fn verdict_mut(&mut self) -> &mut Verdict {
        self.verdict.as_mut().unwrap_or_else(|| unreachable!("it is taken out only at the end"))
    }

    fn done(mut self) -> Verdict {
        self.verdict.take().unwrap_or_else(|| unreachable!("it is taken out only here"))
    }

    fn give_back_local(&self) {
        let engine = self.engine;
        let verdict = self.verdict();
        engine.give_back_here(verdict, verdict.here, &verdict.local, Return::Everything, engine.now());
    }
}

impl<S: Store> Drop for GivesBack<'_, S> {
    fn drop(&mut self) {
        if self.verdict.as_ref().is_some_and(Verdict::is_granted) {
            self.give_back_local();
        }
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.load();
        f.debug_struct("Engine")
            .field("rules", &rules.rules().len())
            .field("shared", &self.shared.is_some())
            .finish_non_exhaustive()
    }
}
