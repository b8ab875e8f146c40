//! Counts for each second of the last hour, in process: the dashboard has charts without any other program.
//!
//! ```text
//!  counters of the rules ─┐  once a second                     ┌─ GET /history?seconds=300&step=5
//!  gateway and services ──┴─▶ Sampler ─▶ History (ring buffers) ┴─ GET /history?rule=each-account
//! ```
//!
//! The [`Sampler`] reads the counters that exist anyway, so a request costs nothing more.
//!
//! # What always holds
//! - The memory is at most [`History::MAX_BYTES`] (21 MB, far less in practice: minutes and outcomes without traffic
//!   take none), whatever the number of rules and requests.
//! - At most [`History::MAX_RULES`] rules have a history of their own: those with the most recent traffic, and those that
//!   deny before those that don't.
//! - A late sample loses nothing: its counts are spread evenly over the seconds since the last one.

mod endpoint;
mod latency;
mod sampler;
mod series;

pub(super) use endpoint::history;
use latency::Latency;
use parking_lot::Mutex;
pub use sampler::Sampler;
use series::{SPAN, Series};
use std::collections::HashMap;
use std::ops::Range;

/// The outcomes that are counted for each second.
const OUTCOMES: [&str; 5] = ["allowed", "denied", "delayed", "rerouted", "shadow_denied"];
const DENIED: [usize; 3] = [1, 3, 4];

/// A rule without traffic for so many seconds makes room for another one.
const IDLE: u64 = 60;

/// A count of each outcome.
type Counts = [u64; OUTCOMES.len()];

/// The history of the gateway, its services and its rules. See the [module](self).
#[derive(Debug, Default)]
pub struct History {
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// The second after the last recorded one.
    end: u64,
    all: Outcomes,
    failed: Series<u32>,
    /// The latencies of requests that were not denied, of upstreams, and of decisions.
    latency: [Latency; 3],
    rules: HashMap<Box<str>, RuleHistory>,
}

#[derive(Debug, Default)]
struct Outcomes {
    series: [Series<u32>; OUTCOMES.len()],
}

#[derive(Debug, Default)]
struct RuleHistory {
    outcomes: Outcomes,
    /// The last second with a request, and with a request over the limit.
    last: u64,
    last_denied: u64,
}

/// The counts since the last sample.
#[derive(Debug, Default)]
struct Sample<'a> {
    all: Counts,
    failed: u64,
    latency: [[u64; diana_metrics::Buckets::LEN]; 3],
    /// The rules that had requests.
    rules: Vec<(&'a str, Counts)>,
}

impl History {
    /// The maximum number of rules with a history of their own.
    pub const MAX_RULES: usize = 256;

    /// The maximum memory, in bytes, without the names of the rules.
    pub const MAX_BYTES: usize = (Self::MAX_RULES + 1) * Outcomes::MAX_BYTES
        + Series::<u32>::MAX_BYTES
        + 3 * Latency::MAX_BYTES
        // A hash map has at most twice as many slots as it needs.
        + 2 * (Self::MAX_RULES + 1) * size_of::<(Box<str>, RuleHistory)>();

    /// Creates an empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the memory in use, in bytes, without the names of the rules.
    pub fn bytes(&self) -> usize {
        let recorded = self.recorded.lock();
        let rules = recorded.rules.values().map(|rule| rule.outcomes.bytes()).sum::<usize>();
        let latency = recorded.latency.iter().map(Latency::bytes).sum::<usize>();
        let slots = recorded.rules.capacity() * size_of::<(Box<str>, RuleHistory)>();
        recorded.all.bytes() + recorded.failed.bytes() + latency + rules + slots
    }

    /// Sets the first second to be recorded.
    fn begin(&self, second: u64) {
        self.recorded.lock().end = second;
    }

    /// Adds what was counted in these seconds, the newest so far.
    fn record(&self, sample: &Sample<'_>, seconds: &Range<u64>) {
        let recorded = &mut *self.recorded.lock();
        let is_new_minute = recorded.end / 60 != seconds.end / 60;
        recorded.end = seconds.end;
        recorded.all.add(&sample.all, seconds);
        recorded.failed.spread(sample.failed, seconds);
        for (latency, counts) in recorded.latency.iter_mut().zip(&sample.latency) {
            latency.add(counts, seconds.end.saturating_sub(1));
        }
        for (name, counts) in &sample.rules {
            if let Some(rule) = recorded.rule(name, counts) {
                rule.outcomes.add(counts, seconds);
                rule.last = seconds.end;
                if is_over_limit(counts) {
                    rule.last_denied = seconds.end;
                }
            }
        }
        if is_new_minute {
            recorded.expire(seconds.end);
        }
    }
}

impl Recorded {
    /// Returns the history of a rule, if it has one, or may have one.
    fn rule(&mut self, name: &str, counts: &Counts) -> Option<&mut RuleHistory> {
        if !self.rules.contains_key(name) && self.rules.len() >= History::MAX_RULES {
            let oldest = self.rules.iter().min_by_key(|(_, rule)| (rule.last_denied, rule.last));
            let (oldest, rule) = oldest?;
            let is_idle = rule.last.saturating_add(IDLE) < self.end;
            if !(is_idle || (is_over_limit(counts) && rule.last_denied == 0)) {
                return None;
            }
            let oldest = oldest.clone();
            self.rules.remove(&oldest);
        }
        Some(self.rules.entry(name.into()).or_default())
    }

    fn expire(&mut self, now: u64) {
        self.all.expire(now);
        self.failed.expire(now);
        self.latency.iter_mut().for_each(|latency| latency.expire(now));
        self.rules.retain(|_, rule| {
            rule.outcomes.expire(now);
            rule.last_denied = if rule.last_denied.saturating_add(SPAN) < now { 0 } else { rule.last_denied };
            rule.last.saturating_add(SPAN) >= now
        });
    }
}

impl Outcomes {
    const MAX_BYTES: usize = OUTCOMES.len() * Series::<u32>::MAX_BYTES;

    fn add(&mut self, counts: &Counts, seconds: &Range<u64>) {
        self.series.iter_mut().zip(counts).for_each(|(series, count)| series.spread(*count, seconds));
    }

    fn expire(&mut self, now: u64) {
        self.series.iter_mut().for_each(|series| series.expire(now));
    }

    fn bytes(&self) -> usize {
        self.series.iter().map(Series::bytes).sum()
    }
}

fn is_over_limit(counts: &Counts) -> bool {
    DENIED.iter().any(|outcome| counts[*outcome] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample<'a>(names: impl IntoIterator<Item = &'a str>, counts: Counts) -> Sample<'a> {
        Sample { all: counts, rules: names.into_iter().map(|name| (name, counts)).collect(), ..Sample::default() }
    }

    fn has(history: &History, name: &str) -> bool {
        history.recorded.lock().rules.contains_key(name)
    }

    /// The worst case: every minute of the hour, every outcome, every bucket, more rules than can be recorded.
    #[test]
    fn the_memory_is_bounded_whatever_the_traffic() {
        let history = History::new();
        let names = (0..History::MAX_RULES + 50).map(|number| format!("rule-{number}")).collect::<Vec<_>>();
        for second in (7_000..7_000 + SPAN + 120).step_by(20) {
            let latency = [[1; diana_metrics::Buckets::LEN]; 3];
            let sample = Sample { latency, failed: 1, ..sample(names.iter().map(|name| &**name), [1; 5]) };
            history.record(&sample, &(second..second + 1));
        }
        assert_eq!(history.recorded.lock().rules.len(), History::MAX_RULES);
        let bytes = history.bytes();
        assert!(bytes <= History::MAX_BYTES && bytes > 15 << 20, "{bytes}");
        const { assert!(History::MAX_BYTES < 22_000_000, "the documented bound") };
        history.record(&Sample::default(), &(20_000..20_001));
        assert!(history.recorded.lock().rules.is_empty());
    }

    #[test]
    fn a_rule_that_denies_takes_the_place_of_one_that_does_not() {
        let history = History::new();
        let names = (0..History::MAX_RULES).map(|number| format!("rule-{number}")).collect::<Vec<_>>();
        history.record(&sample(names.iter().map(|name| &**name), [1, 0, 0, 0, 0]), &(100..101));
        history.record(&sample(["new"], [1, 0, 0, 0, 0]), &(101..102));
        assert!(!has(&history, "new"), "all others had requests within a minute");
        history.record(&sample(["attacked"], [1, 5, 0, 0, 0]), &(102..103));
        assert!(has(&history, "attacked"));
        history.record(&sample(["new"], [1, 0, 0, 0, 0]), &(162..163));
        assert!(has(&history, "new") && has(&history, "attacked"), "the others are idle");
        assert_eq!(history.recorded.lock().rules.len(), History::MAX_RULES);
    }
}
