//! How long a request waits for each rule: in a queue, or for a reserved time.

use super::{CheckedLimit, Verdict};
use crate::ruleset::{CompiledRule, WaitingRequest};
use diana_rules::rule::Rule;
use std::time::Duration;

impl Verdict {
    /// Returns how long it waited for a rule: the time in its queue, and the longest reserved time of its limits.
    #[cold]
    pub(super) fn wait_for(&self, rule: &Rule) -> Duration {
        let is_meant = |queued: &CompiledRule| std::ptr::eq(queued.rule(), rule);
        let queued = self.unusual.queued.filter(|queued| self.rules().rule(queued.rule).is_some_and(is_meant));
        let is_of_rule = |asked: &CheckedLimit<'_>| std::ptr::eq(asked.rule, rule);
        let reserved = self.checked_limits().filter(is_of_rule).filter_map(|asked| asked.answer.wait()).max();
        queued.map_or(Duration::ZERO, |queued| queued.time) + reserved.unwrap_or_default()
    }

    /// Counts the wait of a request that was queued and then denied.
    pub(super) fn count_queue_wait(&self) {
        let Some(queued) = self.unusual.queued else { return };
        if let Some(rule) = self.rules().rule(queued.rule) {
            rule.count_wait(queued.time);
        }
    }

    /// Counts it as waiting for the rule with the longest reserved time, until the result is dropped.
    pub(in crate::engine) fn waiting(&self) -> Option<WaitingRequest> {
        let longest = self.checked_limits().max_by_key(|asked| asked.answer.wait())?;
        let mut rules = self.matches().matched().iter().filter_map(|matched| self.rules().rule(matched.rule));
        rules.find(|rule| std::ptr::eq(rule.rule(), longest.rule)).map(CompiledRule::waiting)
    }
}
