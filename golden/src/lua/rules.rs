//! The window scripts, which check several rules at once: all or nothing.
//!
//! All rules of a call are one request, which a store grants as a whole or not at all. So a request that one rule
//! denies takes nothing from the others, and leaves no state (bugs B05 and B14).

use super::scripts::{Answer, Keys};
use super::{Call, values};
use crate::store::{ScenarioStore, Stop};
use diana_core::{Algorithm, Ask, Limit, MaxWait, Timestamp};
use serde_json::{Value, json};

/// The format of a window script's rules.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arguments {
    /// One rule, an argument for each part.
    Single,
    /// A JSON list of rules.
    Listed,
}

/// One rule of a window script, with its times in nanoseconds.
#[derive(Debug)]
pub(super) struct Rule<A> {
    /// Equal rules have equal texts, and are one limit (bug B06).
    id: String,
    pub(super) limit: i64,
    pub(super) interval: i64,
    pub(super) precision: i64,
    window: Option<A>,
}

/// Returns the rules of a call, each with the window that `make` creates from it, and the time of the call.
pub(super) fn rules<A>(
    call: Call<'_>,
    arguments: Arguments,
    parts: usize,
    make: impl Fn(&Rule<A>) -> Option<A>,
) -> Result<(Vec<Rule<A>>, Timestamp), Stop> {
    let (listed, now) = match arguments {
        Arguments::Single => {
            let names = ["key", "limit", "interval_s", "precision_s"];
            let rule = (0..parts).map(|part| call.need(part, names[part]).cloned()).collect::<Result<Vec<_>, _>>()?;
            (vec![Value::Array(rule)], call.now(Some(parts))?)
        }
        Arguments::Listed => {
            let listed = call.need(0, "rules")?;
            let listed = match listed {
                Value::String(json) => serde_json::from_str(json).map_err(|error| format!("invalid rules: {error}"))?,
                other => other.clone(),
            };
            (listed.as_array().cloned().ok_or("invalid rules: expected a list")?, call.now(Some(1))?)
        }
    };
    let rules = listed.iter().map(|rule| {
        let part = |index: usize| rule.get(index).ok_or_else(|| format!("invalid rule {rule}: expected {parts} parts"));
        let (limit, interval) = (values::count(part(1)?)?, values::nanos(part(2)?)?);
        let precision = if parts > 3 { values::nanos(part(3)?)?.min(interval) } else { interval };
        let id = format!("{} {limit} {interval} {precision}", values::text(part(0)?));
        let mut rule = Rule { id, limit, interval, precision, window: None };
        rule.window = make(&rule);
        Ok(rule)
    });
    Ok((rules.collect::<Result<_, String>>()?, now))
}

/// Checks every rule, and takes from all of them or from none.
pub(super) fn all_or_nothing<A: Algorithm>(
    keys: &mut Keys<A>,
    store: &ScenarioStore<'_>,
    rules: Vec<Rule<A>>,
    now: Timestamp,
    restored_at: impl Fn(&A, Timestamp) -> Timestamp,
) -> Result<Answer, Stop> {
    let mut asked: Vec<(Rule<A>, A, Limit)> = Vec::new();
    for rule in rules {
        let Some(window) = rule.window.clone() else { return Ok(Answer::Rejected) };
        let limit = keys.limit(&rule.id, &window);
        asked.push((rule, window, limit));
    }
    let asks: Vec<Ask<'_>> = asked.iter().map(|(.., limit)| Ask::one(limit, "")).collect();
    // A limit of 0 has a window, since its end is reported, but no permits are ever taken from it.
    let decision = if asked.iter().all(|(rule, ..)| rule.limit > 0) {
        store.decide(&asks, now, MaxWait::NONE)?
    } else {
        store.peek(&asks, now, MaxWait::NONE)?
    };
    let mut reply = Vec::new();
    for ((rule, window, _), answer) in asked.iter().zip(decision.answers()) {
        let (granted, status) = (rule.limit > 0 && answer.is_granted(), answer.status());
        let is_unused = status.remaining == status.limit;
        // The scripts return the end of an unused window, too.
        let reset = if is_unused { restored_at(window, now).since(now) } else { status.reset };
        let remaining = if granted { status.remaining } else { 0 };
        reply.extend([json!(i64::from(granted)), json!(remaining), json!(rule.limit), values::units(reset)]);
    }
    Ok(Answer::Reply(Value::Array(reply)))
}
