//! Runs scripts by their hash, or by their text if Redis does not have them cached.

use crate::link::{Budget, CallError, Link};
use crate::options::Times;
use crate::request::{How, Op, Request, Timing, command, driver, parts};
use crate::scripts::{ModuleSet, Script, Scripts};
use diana_core::Timestamp;
use redis::{Cmd, Value};

/// Runs scripts.
#[derive(Debug)]
pub(crate) struct ScriptRunner {
    pub(crate) link: Link,
    pub(crate) scripts: Scripts,
    pub(crate) times: Times,
}

/// The time of a request: the caller's time, and the budget for Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext {
    pub(crate) now: Timestamp,
    pub(crate) budget: Budget,
}

impl ScriptRunner {
    /// Returns the request's time in microseconds, if the caller's clock is used.
    pub(crate) fn handed_in(&self, moment: CallContext) -> Option<u64> {
        (self.times == Times::OfCaller).then(|| moment.now.as_micros())
    }

    /// Returns the deadline of the request `moment`, in the time of that part of Redis, in microseconds.
    pub(crate) fn deadline(&self, part: usize, moment: CallContext) -> Option<u64> {
        match self.times {
            Times::OfRedis => self.link.deadline(part, moment.budget),
            Times::OfCaller => None,
        }
    }

    /// Runs decide.lua for several requests to one part of Redis. Returns its time and the result of each.
    pub(crate) async fn decide(
        &self,
        op: Op,
        requests: &[Request],
        part: usize,
        timing: Timing,
        budget: Budget,
    ) -> Result<(Timestamp, Vec<Value>), CallError> {
        let modules = requests.iter().fold(ModuleSet::default(), |modules, request| modules.and(request.modules()));
        let script = self.scripts.decide(modules, driver(op, timing, requests));
        let value = self.run(part, budget, |how| command(&script, how, op, timing, requests)).await?;
        let (now, replies) = parts(value, requests).ok_or_else(CallError::nonsense)?;
        if timing.now.is_none() {
            self.link.learn(part, now);
        }
        Ok((Timestamp::from_micros(now), replies.ok_or(CallError::Late)?))
    }

    /// Runs another script.
    pub(crate) async fn script(
        &self,
        script: &Script,
        part: usize,
        budget: Budget,
        arguments: impl Fn(&mut Cmd),
    ) -> Result<Value, CallError> {
        self.run(part, budget, |how| {
            let mut cmd = redis::cmd(how.command());
            cmd.arg(how.argument(script));
            arguments(&mut cmd);
            cmd
        })
        .await
    }

    /// Runs a script by its hash. If Redis does not have it (after a restart or SCRIPT FLUSH), sends the text, which
    /// Redis then caches.
    async fn run(&self, part: usize, budget: Budget, by: impl Fn(How) -> Cmd) -> Result<Value, CallError> {
        match self.link.call(part, &by(How::ByHash), budget).await {
            Err(CallError::NoScript) => self.link.call(part, &by(How::ByText), budget).await,
            other => other,
        }
    }
}
