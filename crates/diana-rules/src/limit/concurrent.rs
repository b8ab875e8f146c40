//! Parses `concurrent`: a number, or `{limit: 10, burst: 20, delay: 200ms, until: upstream_done}`.

use diana_core::Concurrency;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use diana_document::{Node, Value};

/// The fields of `concurrent`, if it is a map.
pub(crate) const FIELDS: [&str; 4] = ["limit", "burst", "delay", "until"];
/// The values of `until`: when a permit is released.
pub(crate) const UNTIL: [&str; 2] = ["client_left", "upstream_done"];

/// Until when a request holds its permit of a `concurrent` limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldUntil {
    /// The response has been sent, or the client has disconnected.
    #[default]
    ClientLeft,
    /// The upstream has responded, even if the client has disconnected. The response is then read and dropped.
    UpstreamDone,
}

/// Parses a concurrency limit; also returns it as it is written.
pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<(Concurrency, String)> {
    if !matches!(node.value, Value::Map(_)) {
        let limit = scalar::count(node, "`concurrent`", 1, problems)?;
        return Some((Concurrency::new(limit).ok()?, node.text().unwrap_or_default().to_owned()));
    }
    let mut fields = MapReader::of(node, "`concurrent`", FIELDS, problems)?;
    let before = problems.len();
    let limit = fields.require("limit", problems).and_then(|node| scalar::count(node, "`limit`", 1, problems));
    let (burst_at, delay_at) = (fields.take_entry("burst"), fields.take_entry("delay"));
    let burst = burst_at.and_then(|entry| scalar::count(&entry.node, "`burst`", 1, problems));
    let delay = delay_at.and_then(|entry| scalar::duration(&entry.node, "`delay`", problems));
    if let Some(until) = fields.take("until") {
        scalar::word(until, "`until`", &UNTIL, problems);
    }
    match (burst_at, delay_at) {
        (Some(entry), None) => {
            let what = "`burst` needs a `delay`";
            problems
                .push(Problem::new(entry.span, what).expected("add `delay: 200ms`, the duration of a typical request"));
        }
        (None, Some(entry)) => {
            let what = "`delay` needs a `burst`: without one, all requests over the limit are denied";
            problems.push(Problem::new(entry.span, what).expected("add `burst: 10`, or remove `delay`"));
        }
        (_, Some(entry)) if delay.is_some_and(|delay| delay.is_zero()) => {
            let problem = Problem::new(
                entry.span,
                "`delay` must be greater than 0: without a delay, `burst` only raises the limit",
            );
            problems.push(problem.expected("expected a time such as 200ms"));
        }
        _ => {}
    }
    fields.finish(problems);
    let (limit, is_valid) = (limit?, problems.len() == before);
    let concurrency = Concurrency::new(limit).ok().filter(|_| is_valid)?;
    Some(match (burst, delay) {
        (Some(burst), Some(delay)) => {
            let written = format!("{limit} burst {burst} delay {}", scalar::time(delay));
            (concurrency.with_burst(burst).with_delay(delay), written)
        }
        _ => (concurrency, limit.to_string()),
    })
}

/// Returns when permits are released: the latest `until` of a rule and its overrides. ([`read`] reports problems.)
pub(crate) fn held_until<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> HeldUntil {
    let is_upstream_done = |node: &Node| match &node.value {
        Value::Map(entries) => entries.iter().any(|entry| entry.key == "until" && entry.node.text() == Some(UNTIL[1])),
        _ => false,
    };
    if nodes.into_iter().any(is_upstream_done) { HeldUntil::UpstreamDone } else { HeldUntil::ClientLeft }
}

/// Returns every `concurrent` in `overrides`, in either form.
pub(crate) fn of_overrides(overrides: &Node) -> Vec<&Node> {
    let each: Vec<&Node> = match &overrides.value {
        Value::Map(entries) => entries.iter().map(|entry| &entry.node).collect(),
        Value::List(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    let fields =
        each.into_iter().filter_map(|own| if let Value::Map(fields) = &own.value { Some(fields) } else { None });
    fields.flatten().filter(|field| field.key == "concurrent").map(|field| &field.node).collect()
}
