//! Counts the outcome of a request for each rule, and records its keys.

use super::Verdict;
use super::fields::{DenyingRule, LogEntry};
use super::limited_by::LoggedOutcome;
use crate::ruleset::{ChargedAt, KeyOutcome, KeyRange, RequestOutcome, sample};
use diana_rules::rule::{Mode, OverLimit};
use std::time::Duration;

impl Verdict {
    /// Updates the counters of each rule, and records the request's keys.
    #[inline]
    pub(super) fn count(&mut self, wait: Option<Duration>) {
        let Some(wait) = wait else {
            self.count_queue_wait();
            return self.count_denial();
        };
        if !self.matches().denied().is_empty() {
            self.count_shadow_denials();
        }
        let sampled = sample(self.at());
        if self.unusual.queued.is_some() || !wait.is_zero() {
            return self.count_delay(sampled);
        }
        let (rules, matches) = (self.rules(), self.matches());
        for matched in matches.matched().iter().filter(|matched| matched.mode == Mode::Enforced) {
            let Some(rule) = rules.rule(matched.rule) else { continue };
            rule.count(RequestOutcome::Allowed);
            if let Some(weight) = sampled.filter(|_| matched.charged_at == ChargedAt::Request) {
                rule.record(KeyOutcome::Allowed, matches.key(matched), weight, self.at());
            }
        }
    }

    /// Updates the counters of each rule for a request that had to wait for some of them.
    #[inline(never)]
    fn count_delay(&mut self, sampled: Option<u64>) {
        for index in 0..self.matches().matched().len() {
            let matched = &self.matches().matched()[index];
            let Some(rule) = self.rules().rule(matched.rule).filter(|_| matched.mode == Mode::Enforced) else {
                continue;
            };
            if self.has_waited_for(rule.rule()) {
                rule.count(RequestOutcome::Delayed);
                rule.count_wait(self.wait_for(rule.rule()));
                let (rule, key) = (matched.rule, matched.key_range());
                self.record(rule, key, LoggedOutcome::Delayed);
                continue;
            }
            rule.count(RequestOutcome::Allowed);
            if let Some(weight) = sampled.filter(|_| matched.charged_at == ChargedAt::Request) {
                rule.record(KeyOutcome::Allowed, self.matches().key(matched), weight, self.at());
            }
        }
    }

    /// Counts a denial for the rule that denied the request, and records its key.
    fn count_denial(&mut self) {
        let Some(DenyingRule { rule: number, key }) = self.denying else { return };
        let Some(rule) = self.rules().rule(number) else { return };
        let is_denied = self.over_limit() == Some(&OverLimit::Deny);
        rule.count(if is_denied { RequestOutcome::Denied } else { RequestOutcome::Rerouted });
        if rule.record(KeyOutcome::Denied, self.matches().key_at(key), 1, self.at()) {
            let outcome = if is_denied { LoggedOutcome::Denied } else { LoggedOutcome::Rerouted };
            self.unusual.to_log.push(LogEntry { rule: number, key, outcome });
        }
    }

    /// Counts the denials of shadow rules that do not depend on counts.
    #[cold]
    fn count_shadow_denials(&mut self) {
        for index in 0..self.matches().denied().len() {
            let denied = self.matches().denied()[index];
            if let Some(rule) = self.rules().rule(denied.rule) {
                rule.count(RequestOutcome::ShadowDenied);
                self.record(denied.rule, denied.key_range(), LoggedOutcome::ShadowDenied);
            }
        }
    }

    /// Records a key that a rule has denied or delayed; remembers if it is to be logged.
    pub(super) fn record(&mut self, rule: u32, key: KeyRange, outcome: LoggedOutcome) {
        let recorded = match outcome {
            LoggedOutcome::Delayed => KeyOutcome::Delayed,
            _ => KeyOutcome::Denied,
        };
        let Some(by) = self.rules().rule(rule) else { return };
        if by.record(recorded, self.matches().key_at(key), 1, self.at()) {
            self.unusual.to_log.push(LogEntry { rule, key, outcome });
        }
    }
}
