//! Call sites with a named rule.

use super::args::{Args, Call};
use super::block_on::block_on;
use super::cache::Cache;
use crate::engine::{DecideMode, Engine, Permit, Reason, Verdict};
use crate::limited::{Caller, Cause, Limited};
use crate::ruleset::RuleNotCallable;
use diana_core::Retry;
use tokio::runtime::Handle;

/// A call site with a named rule.
#[derive(Debug)]
pub struct RuleCallSite {
    function: &'static str,
    instance: Option<&'static str>,
    rule: &'static str,
    engine: Cache<Engine>,
}

impl RuleCallSite {
    /// Creates a call site that was not called yet.
    pub const fn new(function: &'static str, instance: Option<&'static str>, rule: &'static str) -> Self {
        Self { function, instance, rule, engine: Cache::new() }
    }

    /// Queries the rule, blocking this thread for as long as the rule makes the call wait. If the rule can't predict
    /// how long that is, the call is denied. Returns a permit if the call holds something while it runs.
    pub fn wait(&'static self, args: &Args) -> Result<Option<Permit>, Limited> {
        let engine = self.engine()?;
        let deciding = self.with_call(args, |call| engine.decide_by(self.rule, call, DecideMode::Deny))?;
        let decided = match deciding.now() {
            Ok(decided) => decided,
            Err(deciding) => {
                block_on(engine.runtime().as_ref(), deciding).map_err(|cause| self.limited(None, cause))?
            }
        };
        let mut permit = decided.map_err(|denial| self.denied(&denial))?;
        if let Some(wait) = permit.wait().filter(|wait| !wait.is_zero()) {
            permit = permit.provisional();
            engine.park_until(permit.at() + wait);
        }
        permit.begin();
        // A call that holds nothing need not keep its permit, and with it the rules, while it runs.
        Ok(permit.matches().is_held().then_some(permit))
    }

    /// Queries the rule, waiting for as long as it makes the call wait. Dropping the future refunds everything. Returns
    /// a permit if the call holds something while it runs.
    pub async fn wait_async(&'static self, args: Args) -> Result<Option<Permit>, Limited> {
        let engine = self.engine()?;
        let acquired = match self.with_call(&args, |call| engine.acquire_by(self.rule, call))?.now() {
            Ok(acquired) => acquired,
            Err(_) if Handle::try_current().is_err() => return Err(self.limited(None, Cause::NoRuntime)),
            Err(acquiring) => acquiring.await,
        };
        let mut permit = acquired.map_err(|denial| self.denied(&denial))?;
        permit.begin();
        Ok(permit.matches().is_held().then_some(permit))
    }

    fn engine(&'static self) -> Result<Engine, Limited> {
        let rule = self.rule;
        let look_up = |limits: &crate::limited::Limits| limits.rules().cloned().ok_or(Cause::NoRules { rule });
        let engine = self.engine.with(self.instance, look_up, Engine::clone);
        engine.map_err(|cause| match cause {
            Cause::NotInstalled { instance, .. } => {
                self.limited(None, Cause::NotInstalled { instance, rule: Some(rule) })
            }
            other => self.limited(None, other),
        })
    }

    fn with_call<R>(&self, args: &Args, query: impl Fn(&Call<'_>) -> Result<R, RuleNotCallable>) -> Result<R, Limited> {
        let result = Caller::with_current(|caller| query(&Call { args, caller, function: self.function }));
        result.map_err(|error| {
            let cause = match error {
                RuleNotCallable::UnknownArgument { .. } => Cause::UnknownArgument { problem: error.to_string().into() },
                _ => Cause::NoSuchRule { rule: self.rule },
            };
            self.limited(None, cause)
        })
    }

    #[cold]
    fn denied(&self, verdict: &Verdict) -> Limited {
        let (key, is_unknown_caller) = match verdict.reason() {
            Some(Reason::Limit(asked)) if !asked.key.is_empty() => {
                let by = &asked.rule.by;
                (Some(by.shown(asked.key).into()), by.is_unknown(asked.key))
            }
            _ => (None, false),
        };
        let (retry, status) = (verdict.retry().unwrap_or(Retry::Never), verdict.status().unwrap_or(503));
        self.limited(key, Cause::Rule { rule: self.rule, status, retry }).with_unknown_caller(is_unknown_caller)
    }

    fn limited(&self, key: Option<Box<str>>, cause: Cause) -> Limited {
        Limited::new(self.function, 0, key, cause)
    }
}
