//! Maps each script to Diana's terms, and formats its reply.
//!
//! | scripts | implementation | reply |
//! |---|---|---|
//! | fixed_single, fixed_multi, sliding_window, sliding_window_multi | [`rules`](super::rules) | granted, remaining, limit, reset of each rule |
//! | fixed_simple, count_003, counter_004 | `FixedWindow`, started by the first request | 1 or 0; the count or -1 |
//! | token_bucket_hm, token_bucket_004 | `RefillingBucket` | granted, remaining, burst, retry; the remaining tokens or -1 |
//! | sliding_log, zset_002 | `SlidingLog` | now, earlier times, granted by rule; 1 or 0 |
//!
//! Diana rejects some arguments as a limit: zero permits per window, a window of zero length, a cost below 1. Such a
//! call is [`Answer::Rejected`], and only the decision is compared.

use super::rules::{Arguments, all_or_nothing, rules};
use super::{Call, values};
use crate::store::{ScenarioStore, Stop};
use diana_core::{Algorithm, Ask, Cost, FixedWindow, Limit, MaxWait, Quota, WindowStart};
use diana_core::{RefillingBucket, Retry, SlidingLog, SlidingLogState, SlidingWindow, Timestamp};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

/// A script with the limits of its keys.
#[derive(Debug)]
pub(super) enum Script {
    FixedRules(Keys<FixedWindow>, Arguments),
    SlidingRules(Keys<SlidingWindow>, Arguments),
    Counter(Keys<FixedWindow>, ReplyFormat),
    BucketHm(Keys<RefillingBucket>),
    Bucket004(Keys<RefillingBucket>),
    /// The script also returns the content of its logs, which no store does: so they are stored in this value as well.
    SlidingLog(Keys<SlidingLog>, HashMap<String, SlidingLogState>),
    Zset002(Keys<SlidingLog>),
}

/// The answer of a counting script.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReplyFormat {
    /// 1, or 0 if it denies.
    Granted,
    /// The count so far, or -1 if it denies.
    Count,
}

/// Diana's answer in place of the script's.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(Value),
    /// The limit or the cost is invalid, so every request is denied.
    Rejected,
}

impl Script {
    pub(super) fn named(name: &str) -> Result<Self, String> {
        Ok(match name {
            "fixed_single" => Self::FixedRules(Keys::default(), Arguments::Single),
            "fixed_multi" => Self::FixedRules(Keys::default(), Arguments::Listed),
            "sliding_window" => Self::SlidingRules(Keys::default(), Arguments::Single),
            "sliding_window_multi" => Self::SlidingRules(Keys::default(), Arguments::Listed),
            "fixed_simple" | "count_003" => Self::Counter(Keys::default(), ReplyFormat::Granted),
            "counter_004" => Self::Counter(Keys::default(), ReplyFormat::Count),
            "token_bucket_hm" => Self::BucketHm(Keys::default()),
            "token_bucket_004" => Self::Bucket004(Keys::default()),
            "sliding_log" => Self::SlidingLog(Keys::default(), HashMap::new()),
            "zset_002" => Self::Zset002(Keys::default()),
            _ => return Err(format!("unknown script `{name}`")),
        })
    }

    /// Answers one call.
    pub(super) fn call(&mut self, call: Call<'_>, store: &ScenarioStore<'_>) -> Result<Answer, Stop> {
        match self {
            Self::FixedRules(keys, arguments) => {
                let (rules, now) = rules(call, *arguments, 3, |rule| {
                    Some(FixedWindow::new(values::quota(rule.limit.max(1), rule.interval)?))
                })?;
                all_or_nothing(keys, store, rules, now, FixedWindow::restored_at)
            }
            Self::SlidingRules(keys, arguments) => {
                let (rules, now) = rules(call, *arguments, 4, |rule| {
                    let window = SlidingWindow::new(values::quota(rule.limit.max(1), rule.interval)?);
                    // A precision above the interval is the interval.
                    let precision = Duration::from_nanos(u64::try_from(rule.precision).ok()?);
                    window.with_precision(precision).ok()
                })?;
                all_or_nothing(keys, store, rules, now, SlidingWindow::restored_at)
            }
            Self::Counter(keys, format) => count(keys, store, call, *format),
            Self::BucketHm(keys) => bucket_hm(keys, store, call),
            Self::Bucket004(keys) => bucket_004(keys, store, call),
            Self::SlidingLog(keys, logs) => sliding_log(keys, store, logs, call),
            Self::Zset002(keys) => zset_002(keys, store, call),
        }
    }

    /// Returns whether a reply grants the request; `None` if it is not a reply of this script.
    pub(super) fn decision(&self, reply: &Value) -> Option<bool> {
        match self {
            Self::FixedRules(..) | Self::SlidingRules(..) => Some(reply.as_array()?.iter().step_by(4).all(is_one)),
            Self::Counter(_, ReplyFormat::Granted) | Self::Zset002(_) => {
                (reply.is_null() || reply.is_number()).then(|| is_one(reply))
            }
            Self::Counter(_, ReplyFormat::Count) | Self::Bucket004(_) => Some(reply.as_i64()? >= 0),
            Self::BucketHm(_) => reply.as_array()?.first().map(is_one),
            Self::SlidingLog(..) => Some(reply.as_array()?.get(2..)?.iter().all(is_one)),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => reply.fmt(f),
            Self::Rejected => f.write_str("rejected: an invalid limit or cost"),
        }
    }
}

/// The limits of an algorithm's keys, each with its parameters: for a script, those are part of a call.
#[derive(Debug)]
pub(super) struct Keys<A>(HashMap<String, (A, Limit)>);

impl<A> Default for Keys<A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<A: Algorithm> Keys<A> {
    /// Returns the limit of `key` under `algorithm`; changed, if it had other parameters.
    pub(super) fn limit(&mut self, key: &str, algorithm: &A) -> Limit {
        let new = || (algorithm.clone(), Limit::new(key, algorithm.clone()));
        let (parameters, limit) = self.0.entry(key.to_owned()).or_insert_with(new);
        if parameters != algorithm {
            (*parameters, *limit) = (algorithm.clone(), limit.changed_to(algorithm.clone()));
        }
        limit.clone()
    }

    /// Takes `cost` of `key`, without a wait.
    fn ask(
        &mut self,
        store: &ScenarioStore<'_>,
        key: &str,
        algorithm: &A,
        now: Timestamp,
        cost: Cost,
    ) -> Result<diana_core::Answer, Stop> {
        store.decide_one(Ask::new(&self.limit(key, algorithm), "", cost), now, MaxWait::NONE)
    }
}

/// fixed_simple, count_003, counter_004: a window that the first request starts, on the wall clock in milliseconds.
fn count(
    keys: &mut Keys<FixedWindow>,
    store: &ScenarioStore<'_>,
    call: Call<'_>,
    format: ReplyFormat,
) -> Result<Answer, Stop> {
    let (limit, window) = (call.need(0, "limit")?, call.need(1, "window_s")?);
    let now = call.now(None)?;
    let Some(quota) = values::quota(values::count(limit)?, millis_of_seconds(window)?) else {
        return Ok(Answer::Rejected);
    };
    let window = FixedWindow::new(quota).with_window_start(WindowStart::FirstRequest);
    let answer = keys.ask(store, &call.key(), &window, now, Cost::ONE)?;
    let counted = answer.status().limit - answer.status().remaining;
    Ok(Answer::Reply(match (format, answer.is_granted()) {
        (ReplyFormat::Granted, granted) => json!(i64::from(granted)),
        (ReplyFormat::Count, true) => json!(counted),
        (ReplyFormat::Count, false) => json!(-1),
    }))
}

/// token_bucket_hm: [granted, remaining, burst, wait for this cost]; no wait helps a cost above the burst.
fn bucket_hm(keys: &mut Keys<RefillingBucket>, store: &ScenarioStore<'_>, call: Call<'_>) -> Result<Answer, Stop> {
    // The script raises a burst or an amount below 1 to 1; these are its intended defaults.
    let burst = values::count(call.need(1, "burst")?)?.max(1);
    let every = call.arg(2, "refill_ms").map_or(Ok(1_000_000), values::nanos)?;
    let amount = call.arg(3, "refill_amount").map_or(Ok(1), values::count)?.max(1);
    let cost = call.arg(4, "tokens").map_or(Ok(1), values::count)?;
    let now = call.now(Some(5))?;
    let (Some(bucket), Some(cost)) = (bucket(amount, every, burst), cost_of(cost)) else { return Ok(Answer::Rejected) };
    let key = values::text(call.need(0, "key")?);
    let answer = keys.ask(store, &key, &bucket, now, cost)?;
    let wait = match answer.retry() {
        None => json!(0),
        Some(Retry::After(wait)) => values::units(wait),
        Some(_) => Value::Null,
    };
    Ok(Answer::Reply(json!([i64::from(answer.is_granted()), answer.status().remaining, burst, wait])))
}

/// token_bucket_004: the remaining tokens, or -1.
fn bucket_004(keys: &mut Keys<RefillingBucket>, store: &ScenarioStore<'_>, call: Call<'_>) -> Result<Answer, Stop> {
    let capacity = values::count(call.need(0, "capacity")?)?;
    let add = values::count(call.need(1, "add")?)?;
    let every = values::nanos(call.need(2, "interval_s")?)?;
    let now = call.now(Some(3))?;
    let Some(bucket) = bucket(add, every, capacity) else { return Ok(Answer::Rejected) };
    let answer = keys.ask(store, &call.key(), &bucket, now, Cost::ONE)?;
    Ok(Answer::Reply(if answer.is_granted() { json!(answer.status().remaining) } else { json!(-1) }))
}

/// sliding_log: [now, the newest accepted times before, passed by each rule or nil].
fn sliding_log(
    keys: &mut Keys<SlidingLog>,
    store: &ScenarioStore<'_>,
    logs: &mut HashMap<String, SlidingLogState>,
    call: Call<'_>,
) -> Result<Answer, Stop> {
    // The script's rules are hard-coded: 1 per second and 5 per minute.
    let written = json!([[1, 1], [5, 60]]);
    let rules = call.params.get("rules").unwrap_or(&written).as_array().ok_or("invalid rules: expected a list")?;
    let now = call.now(Some(0))?;
    let mut windows = Vec::new();
    for rule in rules {
        let (limit, interval) = (&rule[0], &rule[1]);
        let Some(quota) = values::quota(values::count(limit)?, values::nanos(interval)?) else {
            return Ok(Answer::Rejected);
        };
        windows.push(quota);
    }
    let log = SlidingLog::several(windows).map_err(|error| error.to_string())?;
    let max_times = log.windows().iter().max_by_key(|quota| quota.period()).map_or(0, Quota::permits);
    let granted = keys.ask(store, &call.key(), &log, now, Cost::ONE)?.is_granted();
    // The rules are the same in every call.
    let state = logs.entry(call.key()).or_insert_with(|| log.fresh(now));
    let recent = log.recent(state, now).flat_map(|(time, count)| (0..count).map(move |_| time));
    let recent = recent.take(usize::try_from(max_times).unwrap_or(usize::MAX));
    let recent: Vec<String> = recent.map(|time| units_text(time.since(Timestamp::EPOCH))).collect();
    let mut passed: Vec<bool> = log.used(state, now).map(|(quota, used)| used < quota.permits()).collect();
    if granted {
        log.charge(state, now, Cost::ONE);
    }
    if granted != passed.iter().all(|passed| *passed) {
        // The store's decision is final.
        passed.fill(granted);
    }
    let mut reply = vec![values::units(now.since(Timestamp::EPOCH)), json!(recent)];
    reply.extend(passed.iter().map(|passed| if *passed { json!(1) } else { Value::Null }));
    Ok(Answer::Reply(Value::Array(reply)))
}

/// zset_002: 1 or 0, on the wall clock in milliseconds.
fn zset_002(keys: &mut Keys<SlidingLog>, store: &ScenarioStore<'_>, call: Call<'_>) -> Result<Answer, Stop> {
    let (period, limit) = (call.need(0, "period_s")?, call.need(1, "limit")?);
    let now = call.now(None)?;
    let Some(quota) = values::quota(values::count(limit)?, millis_of_seconds(period)?) else {
        return Ok(Answer::Rejected);
    };
    let log = SlidingLog::new(quota);
    let answer = keys.ask(store, &call.key(), &log, now, Cost::ONE)?;
    Ok(Answer::Reply(json!(i64::from(answer.is_granted()))))
}

/// Converts seconds for a script whose clock counts milliseconds.
fn millis_of_seconds(seconds: &Value) -> Result<i64, String> {
    Ok(values::nanos(seconds)?.saturating_mul(1_000))
}

fn bucket(amount: i64, every: i64, capacity: i64) -> Option<RefillingBucket> {
    let quota = values::quota(amount, every)?.with_burst(u64::try_from(capacity).ok()?).ok()?;
    Some(RefillingBucket::new(quota))
}

fn cost_of(cost: i64) -> Option<Cost> {
    Cost::new(u64::try_from(cost).ok()?).ok()
}

fn units_text(time: Duration) -> String {
    values::text(&values::units(time))
}

fn is_one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}
