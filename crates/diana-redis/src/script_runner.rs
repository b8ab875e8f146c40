//! Runs scripts by their hash, or by their text if Redis does not have them cached.

use crate::link::{Budget, CallError, Link};
use crate::options::TimeSource;
use crate::script_call::{Op, Request, ScriptRef, ScriptTime, Timing, command, driver, split_reply};
use crate::scripts::{ModuleSet, Script, Scripts};
use diana_core::Timestamp;
use redis::{Cmd, Value};

/// Runs scripts.
#[derive(Debug)]
pub(crate) struct ScriptRunner {
    pub(crate) link: Link,
    pub(crate) scripts: Scripts,
    pub(crate) times: TimeSource,
}

/// The time of a request: the caller's time, and the budget for Redis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext {
    pub(crate) now: Timestamp,
    pub(crate) budget: Budget,
}

impl ScriptRunner {
    /// Returns the request's time in microseconds, if the caller's clock is used.
    pub(crate) fn caller_time(&self, context: CallContext) -> Option<u64> {
        (self.times == TimeSource::Caller).then(|| context.now.as_micros())
    }

    /// Returns the clock of a request's script.
    pub(crate) fn script_time(&self, context: CallContext) -> ScriptTime {
        self.caller_time(context).map_or(ScriptTime::Redis, ScriptTime::Caller)
    }

    /// Returns the deadline of a request, in the time of that part of Redis, in microseconds.
    pub(crate) fn deadline(&self, part: usize, context: CallContext) -> Option<u64> {
        match self.times {
            TimeSource::Redis | TimeSource::Local => self.link.deadline(part, context.budget),
            TimeSource::Caller => None,
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
        let timing = match (self.times, timing.now) {
            (TimeSource::Local, ScriptTime::Redis) => match self.link.redis_time(part) {
                Some(micros) => Timing { now: ScriptTime::Local(micros), deadline: None },
                None => timing,
            },
            _ => timing,
        };
        let modules = requests.iter().fold(ModuleSet::default(), |modules, request| modules.and(request.modules()));
        let script = self.scripts.decide(modules, driver(op, timing, requests));
        let value = self.run(part, budget, |by| command(&script, by, op, timing, requests)).await?;
        let (now, replies) = split_reply(value, requests).ok_or_else(CallError::invalid_reply)?;
        if timing.now == ScriptTime::Redis {
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
        self.run(part, budget, |by| {
            let mut cmd = redis::cmd(by.command());
            cmd.arg(by.argument(script));
            arguments(&mut cmd);
            cmd
        })
        .await
    }

    /// Runs a script by its hash. If Redis does not have it (after a restart or SCRIPT FLUSH), sends the text, which
    /// Redis then caches.
    async fn run(&self, part: usize, budget: Budget, command: impl Fn(ScriptRef) -> Cmd) -> Result<Value, CallError> {
        match self.link.call(part, &command(ScriptRef::Hash), budget).await {
            Err(CallError::NoScript) => self.link.call(part, &command(ScriptRef::Text), budget).await,
            other => other,
        }
    }
}
