//! Rates of the rules, from the counts of the last polls.
//!
//! A rate is an average over the last [`POLLS`] polls, so that it neither jumps nor lags.

use crate::command::admin::model::{RuleCounts, RuleList};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// The polls between the oldest and the newest count.
const POLLS: usize = 5;

/// The counts of the last polls.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// The start of the server: its counts begin again with each start.
    started: String,
    polls: VecDeque<Poll>,
}

#[derive(Debug)]
struct Poll {
    at: Duration,
    counts: HashMap<String, RuleCounts>,
}

/// Outcomes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RuleRates {
    pub(super) denied: f64,
    pub(super) allowed: f64,
    pub(super) delayed: f64,
}

impl Rates {
    /// Adds the counts of a poll at a time, which is counted from any fixed point.
    pub(super) fn add(&mut self, at: Duration, started: &str, rules: &RuleList) {
        if self.started != started {
            started.clone_into(&mut self.started);
            self.polls.clear();
        }
        let counts = rules.rules.iter().map(|rule| (rule.name.clone(), rule.counts)).collect();
        self.polls.push_back(Poll { at, counts });
        while self.polls.len() > POLLS + 1 {
            self.polls.pop_front();
        }
    }

    /// Returns a rule's rates; `None` before the second poll.
    pub(super) fn get(&self, rule: &str, is_shadow: bool) -> Option<RuleRates> {
        let (first, last) = (self.polls.front()?, self.polls.back()?);
        let seconds = last.at.saturating_sub(first.at).as_secs_f64();
        if seconds <= 0.0 {
            return None;
        }
        // A new rule started at zero.
        let (before, now) = (first.counts.get(rule).copied().unwrap_or_default(), *last.counts.get(rule)?);
        let denied = |counts: RuleCounts| if is_shadow { counts.shadow_denied } else { counts.denied };
        let rate = |before: u64, now: u64| precise(now.saturating_sub(before)) / seconds;
        Some(RuleRates {
            denied: rate(denied(before), denied(now)),
            allowed: rate(before.allowed, now.allowed),
            delayed: rate(before.delayed, now.delayed),
        })
    }
}

/// Returns a count as a float, for display.
pub(super) fn precise(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::admin::model::RuleSummary;

    fn rules(denied: u64, shadow_denied: u64) -> RuleList {
        let counts = RuleCounts { denied, shadow_denied, ..RuleCounts::default() };
        RuleList { rules: vec![RuleSummary { name: "a".to_owned(), counts, ..RuleSummary::default() }] }
    }

    fn denied(rates: &Rates) -> Option<f64> {
        rates.get("a", false).map(|rates| rates.denied)
    }

    #[test]
    fn a_rate_is_an_average_of_five_polls() {
        let mut rates = Rates::default();
        assert_eq!(denied(&rates), None);
        for second in 0..=20 {
            rates.add(Duration::from_secs(second), "T0", &rules(second * second, 3 * second));
        }
        // From 15² to 20² in five seconds.
        assert_eq!(denied(&rates), Some(35.0));
        assert_eq!(rates.get("a", true).map(|rates| rates.denied), Some(3.0));
        assert_eq!(rates.get("b", false), None);
    }

    #[test]
    fn a_restart_begins_again() {
        let mut rates = Rates::default();
        rates.add(Duration::from_secs(0), "T0", &rules(1_000, 0));
        rates.add(Duration::from_secs(1), "T1", &rules(2, 0));
        assert_eq!(denied(&rates), None);
        rates.add(Duration::from_secs(2), "T1", &rules(6, 0));
        assert_eq!(denied(&rates), Some(4.0));
        rates.add(Duration::from_secs(3), "T1", &rules(0, 0));
        assert_eq!(denied(&rates), Some(0.0), "a rule that was replaced");
    }
}
