//! Call sites with a named rule.

use super::args::{Args, Call};
use super::block_on;
use super::cache::Cache;
use crate::engine::{DecideFuture, Engine, LeaseGuard, Reason, RequestPhase, Verdict};
use crate::limited::{Caller, Cause, Limited};
use diana_core::{Retry, Store, Timestamp};
use diana_rules::Attributes;
use diana_rules::ruleset::RuleNotCallable;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// An engine, with its store type erased.
pub(in crate::limited) trait Rules: fmt::Debug + Send + Sync {
    /// Queries a rule, and queues the call if the rule allows it.
    fn admit(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_>, RuleNotCallable>;
    /// Queries a rule.
    fn decide(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_>, RuleNotCallable>;
    fn keep(&self, verdict: &Verdict) -> Option<LeaseGuard>;
    fn leave(&self, verdict: Verdict, left: RequestPhase);
    fn runtime(&self) -> Option<Handle>;
    fn park_until(&self, time: Timestamp);
}

impl<S: Store + 'static> Rules for Arc<Engine<S>> {
    fn admit(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_>, RuleNotCallable> {
        self.admit_by(rule, call).map(DecideFuture::whichever_store)
    }

    fn decide(&self, rule: &str, call: &dyn Attributes) -> Result<DecideFuture<'_>, RuleNotCallable> {
        self.decide_by(rule, call).map(DecideFuture::whichever_store)
    }

    fn keep(&self, verdict: &Verdict) -> Option<LeaseGuard> {
        Engine::keep(self, verdict)
    }

    fn leave(&self, verdict: Verdict, left: RequestPhase) {
        Engine::leave(self, verdict, left, None);
    }

    fn runtime(&self) -> Option<Handle> {
        Engine::runtime(self)
    }

    fn park_until(&self, time: Timestamp) {
        Engine::park_until(self, time);
    }
}

/// A call site with a named rule.
#[derive(Debug)]
pub struct RuleSite {
    function: &'static str,
    instance: Option<&'static str>,
    rule: &'static str,
    found: Cache<Arc<dyn Rules>>,
}

impl RuleSite {
    /// Creates a call site that was not called yet.
    pub const fn new(function: &'static str, instance: Option<&'static str>, rule: &'static str) -> Self {
        Self { function, instance, rule, found: Cache::new() }
    }

    /// Queries the rule, blocking this thread for as long as the rule makes the call wait. If the rule can't predict
    /// how long that is, the call is denied.
    pub fn wait(&'static self, told: &Args) -> Result<Pass, Limited> {
        let rules = self.rules()?;
        let deciding = self.with_call(told, |call| rules.decide(self.rule, call))?;
        let verdict = match deciding.now() {
            Ok(verdict) => verdict,
            Err(deciding) => {
                block_on::on(rules.runtime().as_ref(), deciding).map_err(|cause| self.limited(None, cause))?
            }
        };
        let (mut pass, wait) = self.granted(&rules, verdict)?;
        if let Some(verdict) = pass.verdict().filter(|_| !wait.is_zero()) {
            rules.park_until(verdict.at() + wait);
        }
        pass.begin();
        Ok(pass)
    }

    /// Queries the rule, waiting for as long as it makes the call wait. Dropping the future refunds everything.
    pub async fn wait_async(&'static self, told: Args) -> Result<Pass, Limited> {
        let rules = self.rules()?;
        let deciding = self.with_call(&told, |call| rules.admit(self.rule, call))?;
        let verdict = match deciding.now() {
            Ok(verdict) => verdict,
            Err(_) if Handle::try_current().is_err() => return Err(self.limited(None, Cause::NoRuntime)),
            Err(deciding) => deciding.await,
        };
        let (mut pass, wait) = self.granted(&rules, verdict)?;
        if !wait.is_zero() {
            if Handle::try_current().is_err() {
                return Err(self.limited(None, Cause::NoRuntime));
            }
            tokio::time::sleep(wait).await;
        }
        pass.begin();
        Ok(pass)
    }

    fn rules(&'static self) -> Result<Arc<dyn Rules>, Limited> {
        let look_up = |limits: &crate::limited::Limits| limits.rules().cloned().ok_or(Cause::NoRules);
        self.found.ask(self.instance, look_up, Arc::clone).map_err(|cause| self.limited(None, cause))
    }

    fn with_call<R>(&self, told: &Args, ask: impl Fn(&Call<'_>) -> Result<R, RuleNotCallable>) -> Result<R, Limited> {
        let asked = Caller::look(|caller| ask(&Call { told, caller, function: self.function }));
        asked.map_err(|error| {
            let cause = match error {
                RuleNotCallable::NotAsked { .. } => Cause::NotAsked { problem: error.to_string().into() },
                _ => Cause::NoSuchRule { rule: self.rule },
            };
            self.limited(None, cause)
        })
    }

    /// Returns the guard of a granted call, and how long it has to wait.
    fn granted(&self, rules: &Arc<dyn Rules>, verdict: Verdict) -> Result<(Pass, Duration), Limited> {
        match verdict.wait() {
            Some(Duration::ZERO) if !verdict.found().is_held() => Ok((Pass(None), Duration::ZERO)),
            Some(wait) => Ok((Pass(Some(Box::new(Holding::new(rules, verdict)))), wait)),
            None => Err(self.refused(&verdict)),
        }
    }

    #[cold]
    fn refused(&self, verdict: &Verdict) -> Limited {
        let (key, is_nobodys) = match verdict.reason() {
            Some(Reason::Limit(asked)) if !asked.key.is_empty() => {
                let by = &asked.rule.by;
                (Some(by.shown(asked.key).into()), by.is_unknown(asked.key))
            }
            _ => (None, false),
        };
        let (retry, status) = (verdict.retry().unwrap_or(Retry::Never), verdict.status().unwrap_or(503));
        self.limited(key, Cause::Rule { rule: self.rule, status, retry }).nobodys(is_nobodys)
    }

    fn limited(&self, key: Option<Box<str>>, cause: Cause) -> Limited {
        Limited::new(self.function, 0, key, cause)
    }
}

/// The guard of a granted call: releases its permits when the function returns.
#[derive(Debug)]
#[must_use = "dropping it says that the call is over"]
pub struct Pass(Option<Box<Holding>>);

impl Pass {
    fn verdict(&self) -> Option<&Verdict> {
        self.0.as_ref()?.verdict.as_ref()
    }

    /// Marks the call as started.
    fn begin(&mut self) {
        let Some(holding) = &mut self.0 else { return };
        holding.left = RequestPhase::Done;
    }
}

#[derive(Debug)]
struct Holding {
    rules: Arc<dyn Rules>,
    /// `None` once it is released.
    verdict: Option<Verdict>,
    keeping: Option<LeaseGuard>,
    /// The phase of the call, if it ended now.
    left: RequestPhase,
}

impl Holding {
    fn new(rules: &Arc<dyn Rules>, verdict: Verdict) -> Self {
        let keeping = rules.keep(&verdict);
        Self { rules: Arc::clone(rules), verdict: Some(verdict), keeping, left: RequestPhase::Unbegun }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let Some(verdict) = self.verdict.take() else { return };
        self.keeping = None;
        // Whether the call finished or succeeded is unknown here, so an adaptive limit learns nothing from it.
        self.rules.leave(verdict, self.left);
    }
}
