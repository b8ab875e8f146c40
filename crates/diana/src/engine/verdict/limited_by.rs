//! Which rules limited a request, for which keys, and the log of that.
//!
//! # What always holds (tests/it/denial_log.rs)
//! - Of each key, one denial a minute is logged at once, and of each rule at most
//!   [`MAX_LOGGED`](crate::ruleset::MAX_LOGGED). The others are counted, and logged together with
//!   [`Engine::log_denied_minutes`](crate::Engine::log_denied_minutes).
//! - Keys are written in the format of the file's `log_keys`.

use super::Verdict;
use crate::RuleSet;
use crate::engine::asks::Scope;
use crate::ruleset::{DenyReason, KeyRange};
use diana_core::{Retry, Timestamp};
use diana_rules::logged_keys::LogLevel;
use diana_rules::rule::{Mode, Rule};
use std::net::IpAddr;

/// A rule that limited a request, and the key that it counts.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LimitedBy<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The key; empty if the rule counts all requests together, or the request has no key.
    pub key: &'a [u8],
}

/// The outcome of a request that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum LoggedOutcome {
    Denied,
    Rerouted,
    Delayed,
    ShadowDenied,
}

/// A request as the log of denials describes it. Front ends know more about it than the rules do.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoggedRequest<'a> {
    /// The front end that got it, such as `gateway`.
    pub service: &'static str,
    /// The client's address.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: Option<&'a str>,
    /// The path, without the query, which may have secrets.
    pub path: Option<&'a str>,
}

impl LoggedOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Rerouted => "rerouted",
            Self::Delayed => "delayed",
            Self::ShadowDenied => "would be denied (shadow rule)",
        }
    }
}

impl Verdict {
    /// Returns the rule that denied, rerouted or delayed the request, and the key; `None` if it was granted at once.
    pub fn limited_by(&self) -> Option<LimitedBy<'_>> {
        if let Some(denying) = self.denying {
            return self.limiting(denying.rule, denying.key);
        }
        let delay = self.waited_for()?;
        let matched_rules = self.matches().matched().iter();
        let mut rules = matched_rules.filter_map(|matched| self.limiting(matched.rule, matched.key_range()));
        rules.find(|limiting| std::ptr::eq(limiting.rule, delay))
    }

    /// Returns the shadow rules that would have denied it, and the keys.
    pub fn shadow_denials(&self) -> impl Iterator<Item = LimitedBy<'_>> {
        // Shadow rules are only reported for granted requests.
        let listed = self.matches().denied().iter().filter(|_| self.is_granted());
        let listed = listed.map(|denial| (denial.rule, denial.key_range()));
        let counted = self.decisions.iter().filter(|scoped| !scoped.decision.is_granted());
        let counted = counted.filter_map(|scoped| match scoped.scope {
            Scope::Shadow(index) => {
                self.matches().matched().get(index).map(|matched| (matched.rule, matched.key_range()))
            }
            _ => None,
        });
        let all = listed.chain(counted).filter_map(|(rule, key)| self.limiting(rule, key));
        all.filter(|limiting| limiting.rule.mode == Mode::Shadow)
    }

    /// Returns a key as logs write it.
    pub fn logged_key(&self, limited_by: &LimitedBy<'_>) -> Option<String> {
        self.rules().log_keys().show(&limited_by.rule.by, limited_by.key)
    }

    /// Returns why it was denied, if not by a count.
    fn reason_regardless_of_counts(&self) -> Option<&'static str> {
        Some(match self.unusual.denied_by?.why {
            DenyReason::Listed => "listed in `deny`",
            DenyReason::Missing => "no key",
            DenyReason::Cost => "the cost can't be computed",
            DenyReason::Overloaded(_) => "overloaded",
        })
    }

    fn limiting(&self, rule: u32, key: KeyRange) -> Option<LimitedBy<'_>> {
        Some(LimitedBy { rule: self.rules().rule(rule)?.rule(), key: self.matches().key_at(key) })
    }

    /// Returns `true` if something about it is to be logged: a denial, a delay, or a denial by a shadow rule.
    #[inline]
    pub fn has_log_entries(&self) -> bool {
        !self.unusual.to_log.is_empty()
    }

    /// Logs its outcomes, as events of `tracing`. Front ends call this once for each verdict.
    #[cold]
    pub fn log(&self, request: &LoggedRequest<'_>) {
        for entry in &self.unusual.to_log {
            let Some(limiting) = self.limiting(entry.rule, entry.key) else { continue };
            let level = match (limiting.rule.log, entry.outcome) {
                (LogLevel::Error, LoggedOutcome::Delayed) => tracing::Level::WARN,
                (LogLevel::Error, _) => tracing::Level::ERROR,
                (LogLevel::Warn, LoggedOutcome::Delayed) => tracing::Level::INFO,
                (LogLevel::Warn, _) => tracing::Level::WARN,
                (_, LoggedOutcome::Delayed) => tracing::Level::DEBUG,
                _ => tracing::Level::INFO,
            };
            let key = self.logged_key(&limiting).map(shortened);
            let path = request.path.map(|path| shortened(path.to_owned()));
            let wait = (entry.outcome == LoggedOutcome::Delayed).then(|| self.wait().unwrap_or_default());
            let wait = wait.map(|wait| (wait + self.queued_for()).as_secs_f64());
            let retry = self.retry().filter(|_| entry.outcome != LoggedOutcome::ShadowDenied);
            let retry_after = match retry {
                Some(Retry::After(time)) => Some(time.as_secs_f64()),
                _ => None,
            };
            let fallback = self.is_fallback().then_some(true);
            let reason = self.reason_regardless_of_counts().filter(|_| entry.outcome == LoggedOutcome::Denied);
            macro_rules! event {
                ($level:expr) => {
                    tracing::event!(
                        $level,
                        rule = limiting.rule.name,
                        key = key.as_deref().map(tracing::field::debug),
                        client = request.client.map(tracing::field::display),
                        method = request.method.map(tracing::field::debug),
                        path = path.as_deref().map(tracing::field::debug),
                        reason,
                        retry_after,
                        wait,
                        fallback,
                        service = request.service,
                        "{}",
                        entry.outcome.name()
                    )
                };
            }
            match level {
                tracing::Level::ERROR => event!(tracing::Level::ERROR),
                tracing::Level::WARN => event!(tracing::Level::WARN),
                tracing::Level::INFO => event!(tracing::Level::INFO),
                _ => event!(tracing::Level::DEBUG),
            }
        }
    }
}

/// Cuts a text that clients may make long.
fn shortened(mut text: String) -> String {
    const MAX: usize = 256;
    if text.len() > MAX {
        // `floor_char_boundary` needs Rust 1.91.
        text.truncate((0..=MAX).rfind(|&at| text.is_char_boundary(at)).unwrap_or(0));
        text.push('…');
    }
    text
}

/// Logs, for each rule, the denials of the last minute that were not logged at once.
pub(in crate::engine) fn log_denied_minutes(rules: &RuleSet, now: Timestamp) {
    for rule in rules.rules() {
        let Some(minute) = rule.denied_minute(now) else { continue };
        let (name, denied) = (&rule.rule().name, minute.denied);
        // Only the beginning of a long key is known, which is no key.
        let heaviest = minute.heaviest.as_ref().filter(|top| !top.is_cut);
        let key = heaviest.and_then(|top| rules.log_keys().show(&rule.rule().by, &top.key));
        let key = key.as_deref().map(tracing::field::debug);
        let of_key = heaviest.filter(|_| key.is_some()).map(|top| top.count);
        let what = match rule.rule().mode {
            Mode::Shadow => "requests that would have been denied in the last minute (shadow rule)",
            _ => "requests denied in the last minute",
        };
        match rule.rule().log {
            LogLevel::Error => {
                tracing::error!(rule = name, denied, heaviest_key = key, of_key, "{what}");
            }
            LogLevel::Warn => {
                tracing::warn!(rule = name, denied, heaviest_key = key, of_key, "{what}");
            }
            _ => tracing::info!(rule = name, denied, heaviest_key = key, of_key, "{what}"),
        }
    }
}
