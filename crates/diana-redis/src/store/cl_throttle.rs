//! `CL.THROTTLE` on Redis: one script call, or the share of this process while Redis is unreachable.
//!
//! What this process grants in an outage is owed: the next call for the same key that reaches Redis charges what is
//! left of it. Keys without further calls from this process are not charged.

use super::RedisStoreInner;
use crate::fallback::RETRY_AFTER;
use crate::key::KeySpace;
use crate::link::{CallError, Counter};
use crate::options::{TimeSource, WhenDown};
use crate::script_runner::CallContext;
use diana_core::{
    Answer, Ask, ClThrottle, Cost, Limit, LocalStore, MAX_PERMITS, MaxWait, MemoryStore, StoreError, TimeDebt,
    Timestamp,
};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NANOS: i64 = 1_000_000_000;
/// How often paid debts are dropped while some are owed.
const RECLAIM_EVERY: Duration = Duration::from_secs(1);

/// The debts of keys in this process, for outages.
#[derive(Debug)]
pub(super) struct LocalDebts {
    /// The debts in the time of this process's share: Redis is owed as many times less as there are instances.
    debts: MemoryStore,
    limit: Limit,
    /// Whether there may be a debt.
    is_owed: AtomicBool,
    /// When paid debts were last dropped. Locked while a debt is taken, so that it is charged once.
    reclaimed: Mutex<Timestamp>,
}

impl Default for LocalDebts {
    fn default() -> Self {
        let (debts, limit) = (MemoryStore::default(), Limit::new("CL.THROTTLE", TimeDebt));
        Self { debts, limit, is_owed: AtomicBool::new(false), reclaimed: Mutex::default() }
    }
}

impl LocalDebts {
    /// Answers a call as one of `instances`.
    fn answer(&self, name: &[u8], call: &ClThrottle, instances: u64, now: Timestamp) -> Answer {
        let answer = self.debts.cl_throttle(&self.limit, name, &call.divided(instances), now);
        self.is_owed.store(true, Ordering::Release);
        answer
    }

    /// Removes the debt of a key, and returns what Redis is owed.
    fn take(&self, name: &[u8], instances: u64, now: Timestamp) -> Duration {
        if !self.is_owed.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        let mut reclaimed = self.reclaimed.lock();
        if now.since(*reclaimed) >= RECLAIM_EVERY {
            *reclaimed = now;
            self.debts.reclaim(now);
            self.is_owed.store(!self.debts.is_empty(), Ordering::Release);
        }
        let peeked = LocalStore::peek(&self.debts, &[Ask::one(&self.limit, name)], now, MaxWait::NONE);
        let debt = peeked.answers().first().map_or(Duration::ZERO, |answer| answer.status().reset);
        if debt.is_zero() {
            return debt;
        }
        LocalStore::reset(&self.debts, &self.limit, name, now);
        debt / u32::try_from(instances.max(1)).unwrap_or(u32::MAX)
    }

    /// Restores a debt that could not be charged.
    fn put_back(&self, name: &[u8], owed: Duration, instances: u64, now: Timestamp) {
        let nanos = owed.as_nanos().saturating_mul(u128::from(instances.max(1))).min(u128::from(MAX_PERMITS));
        if let Ok(cost) = Cost::new(u64::try_from(nanos).unwrap_or(MAX_PERMITS)) {
            LocalStore::charge(&self.debts, Ask::new(&self.limit, name, cost), now);
            self.is_owed.store(true, Ordering::Release);
        }
    }
}

impl RedisStoreInner {
    /// Decides one call: on Redis, or else according to `when_down`.
    pub(super) async fn cl_throttle(
        &self,
        limit: &Limit,
        key: &[u8],
        call: &ClThrottle,
        now: Timestamp,
    ) -> Result<Answer, StoreError> {
        if limit.algorithm::<TimeDebt>().is_none() {
            let reason = "a CL.THROTTLE limit has no parameters of its own; its algorithm is `TimeDebt`".to_owned();
            return Err(StoreError::Unsupported { store: "redis".to_owned(), limit: limit.name().to_owned(), reason });
        }
        let (link, instances) = (&self.client.runner.link, self.instances());
        let name = KeySpace::new(&self.client.prefix, limit.name()).name(key);
        if link.is_up(link.part(&name)) {
            link.counters().count(Counter::Wait);
            let owed = self.cl_throttle_debts.take(&name, instances, self.local_now(now));
            match self.cl_throttle_on_redis(&name, call, owed, self.client.context(now)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    if !error.may_have_run() {
                        self.cl_throttle_debts.put_back(&name, owed, instances, self.local_now(now));
                    }
                    self.warn_undecided(&error);
                }
            }
        }
        Ok(match self.when_down {
            policy @ (WhenDown::Local | WhenDown::LocalFull) => {
                let shares = policy.shares(instances);
                self.cl_throttle_debts.answer(&name, call, shares, self.local_now(now))
            }
            WhenDown::Deny => call.denied(RETRY_AFTER),
            WhenDown::Allow => call.answer(Duration::ZERO, now),
        })
    }

    async fn cl_throttle_on_redis(
        &self,
        name: &[u8],
        call: &ClThrottle,
        owed: Duration,
        context: CallContext,
    ) -> Result<Answer, CallError> {
        match self.run_cl_throttle(name, call, owed, context).await {
            // The answer has arrived, so it was not late: Redis's clock was changed. The offset is updated by now.
            Err(CallError::Late) => self.run_cl_throttle(name, call, owed, context).await,
            Err(CallError::ScriptFailed(reason)) => {
                let hint = "delete the key if Diana did not write it, or set another prefix";
                Err(CallError::Unanswerable(format!("key `{}`: {reason}; {hint}", name.escape_ascii())))
            }
            other => other,
        }
    }

    async fn run_cl_throttle(
        &self,
        name: &[u8],
        call: &ClThrottle,
        owed: Duration,
        context: CallContext,
    ) -> Result<Answer, CallError> {
        let runner = &self.client.runner;
        let part = runner.link.part(name);
        let deadline = runner.deadline(part, context);
        let arguments = |cmd: &mut Cmd| {
            cmd.arg(1).arg(name);
            match self.times {
                TimeSource::Redis | TimeSource::Local => cmd.arg("").arg(""),
                TimeSource::Caller => push(cmd, Duration::from_nanos(context.now.as_nanos())),
            };
            cmd.arg(deadline.map_or_else(String::new, |micros| micros.to_string()));
            push(cmd, call.span());
            cmd.arg(call.cost_nanos().div_euclid(NANOS)).arg(call.cost_nanos().rem_euclid(NANOS));
            push(cmd, owed);
        };
        let value = runner.script(&runner.scripts.cl_throttle, part, context.budget, arguments).await?;
        let reply = parse(&value).ok_or_else(CallError::invalid_reply)?;
        if self.times != TimeSource::Caller {
            runner.link.learn(part, reply.now);
        }
        let (limited, debt) = reply.decided.ok_or(CallError::Late)?;
        let answer = call.answer(debt, context.now);
        if answer.is_granted() != limited { Ok(answer) } else { Err(CallError::disagreement()) }
    }
}

fn push(cmd: &mut Cmd, time: Duration) -> &mut Cmd {
    cmd.arg(time.as_secs()).arg(time.subsec_nanos())
}

/// A reply of the script.
struct Reply {
    /// Redis's time in microseconds.
    now: u64,
    /// Whether the call is limited, and the debt before it; `None` if the script ran too late.
    decided: Option<(bool, Duration)>,
}

fn parse(value: &Value) -> Option<Reply> {
    let Value::Array(values) = value else { return None };
    match &values[..] {
        [Value::Int(now), Value::BulkString(late)] if late == b"late" => {
            Some(Reply { now: u64::try_from(*now).ok()?, decided: None })
        }
        [Value::Int(now), Value::Int(limited @ (0 | 1)), Value::Int(seconds), Value::Int(nanos)] => {
            let debt = Duration::new(u64::try_from(*seconds).ok()?, u32::try_from(*nanos).ok()?);
            Some(Reply { now: u64::try_from(*now).ok()?, decided: Some((*limited == 1, debt)) })
        }
        _ => None,
    }
}
