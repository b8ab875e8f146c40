//! The responses of the admin API in words, for the commands and for the dialogs of `diana top`.
//!
//! Texts of the server may come from clients (a key is any text that they send), so each is made visible first.

mod audit;

use super::model::{Degraded, KeyStatus, Status, Top, TopKeys, TopRule, UpstreamCheck, WhatIf, shown};
use crate::command::output::{count_of, visible};
use diana_metrics::{Totals, UpstreamStatus};

/// Formats a number: `1,234,567`.
pub(crate) fn number(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a time: `250ms`, `1.5s`, `2m 3s`, `1h 5m`.
pub(crate) fn seconds(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_owned();
    }
    let whole = |value: f64| format!("{value:.0}");
    match seconds {
        0.0 => "0s".to_owned(),
        s if s < 0.9995 => format!("{}ms", whole((s * 1e3).max(1.0))),
        s if s < 59.95 => format!("{}s", format!("{s:.1}").trim_end_matches(".0")),
        s if s < 3_599.5 => format!("{}m {}s", whole((s.round() / 60.0).floor()), whole(s.round() % 60.0)),
        s => {
            let s = s.round();
            format!("{}h {}m", whole((s / 3_600.0).floor()), whole((s % 3_600.0 / 60.0).floor()))
        }
    }
}

/// Returns a key's parts as one text.
pub(crate) fn key(parts: &[String]) -> String {
    match parts {
        [] => "everyone".to_owned(),
        parts => visible(&parts.join(", ")),
    }
}

/// Returns a key's text as the server shows it; a rule without `by` has one key, without a text.
pub(crate) fn key_text(text: &str) -> String {
    if text.is_empty() { "everyone".to_owned() } else { visible(text) }
}

impl KeyStatus {
    /// Describes the key: a line, and one for each limit.
    pub(crate) fn describe(&self) -> String {
        let counted = match &*self.counted {
            "shared" => ", counted in Redis",
            "fallback" => ", counted in this process while Redis is unreachable",
            _ => "",
        };
        let mut text = format!("{} for {}{counted}\n", visible(&self.rule), key(&self.key));
        match self.listed.as_deref() {
            Some("allow") => text.push_str("  listed in `allow`: always allowed, not counted\n"),
            Some("deny") => text.push_str("  listed in `deny`: always denied\n"),
            _ => {}
        }
        for limit in &self.limits {
            let decision = match (limit.allowed, limit.retry_after) {
                (true, _) => "allowed".to_owned(),
                (false, None) => "denied".to_owned(),
                (false, Some(after)) => format!("denied, retry after {}", seconds(after)),
            };
            let (left, all) = (number(limit.remaining), number(limit.limit));
            let reset = match limit.reset {
                reset if reset > 0.0 => format!(", full again in {}", seconds(reset)),
                _ => String::new(),
            };
            text.push_str(&format!("  {}: {left} of {all} left, {decision}{reset}\n", visible(&limit.name)));
        }
        text
    }
}

impl WhatIf {
    /// Describes the estimate.
    pub(crate) fn describe(&self) -> String {
        let (rule, limit, now) = (visible(&self.rule), visible(&self.limit), visible(&self.now));
        let mut text = format!("{rule} with {limit} instead of {now}, over the last {}:\n", visible(&self.window));
        let (denied, would_deny) = (number(self.denied), number(self.would_deny));
        text.push_str(&format!("  denied {denied}, would deny {would_deny}\n"));
        for key in &self.keys {
            let (denied, would_deny) = (number(key.denied), number(key.would_deny));
            text.push_str(&format!("  {}: denied {denied}, would deny {would_deny}\n", key_text(&key.text)));
        }
        if !self.note.is_empty() {
            text.push_str(&format!("note: {}\n", visible(&self.note)));
        }
        text
    }

    /// Returns the shadow rule that counts exactly, as YAML.
    pub(crate) fn shadow_rule(&self) -> String {
        self.shadow_rule.lines().map(|line| format!("{}\n", visible(line))).collect()
    }
}

impl Status {
    /// Describes the program, a line for each part.
    pub(crate) fn describe(&self, admin: &str) -> String {
        let mut lines = Vec::new();
        let mut line = |name: &str, text: String| lines.push(format!("{name:<12} {}\n", visible(&text)));
        line("diana", format!("{} at {admin}, {}, started {}", self.version, self.phase, self.started));
        let source = self.source.iter().map(|source| {
            let origin = match &*source.active {
                "remote" => "config server ",
                "last good" => "last good document of ",
                _ => "",
            };
            format!(" from {origin}{}, since {}", source.name, source.since)
        });
        let rules = usize::try_from(self.rules).unwrap_or(usize::MAX);
        line("rules", format!("{}{}", count_of(rules, "rule"), source.collect::<String>()));
        if !self.settings.applied.is_empty() {
            line("settings", format!("applied since the start: {}", self.settings.applied.join(", ")));
        }
        let requests = self.requests.iter().filter(|(_, count)| **count > 0);
        let requests = requests.map(|(name, count)| format!("{} {name}", number(*count)));
        let requests = requests.collect::<Vec<_>>().join(", ");
        line("requests", if requests.is_empty() { "none yet".to_owned() } else { requests });
        line("keys", format!("{} in {}", number(self.keys), bytes(self.key_bytes)));
        shown(Totals::METRICS, &self.fields).for_each(|(name, count)| line(&name, number(count)));
        if let Some(store) = self.store.as_ref().filter(|store| store.up) {
            let instances = usize::try_from(store.instances).unwrap_or(usize::MAX);
            line("redis", format!("reachable, {}", count_of(instances, "instance")));
        }
        for upstream in &self.upstreams {
            let health = match &upstream.check {
                _ if upstream.healthy => "healthy".to_owned(),
                Some(UpstreamCheck { passing: false, error }) => {
                    let error = error.as_ref().map(|error| format!(" ({})", visible(error))).unwrap_or_default();
                    format!("fails its checks{error}")
                }
                _ => "ejected".to_owned(),
            };
            let counts = shown(UpstreamStatus::METRICS, &upstream.fields);
            let counts = counts.map(|(name, count)| format!(", {} {name}", number(count))).collect::<String>();
            let times = [("p50", upstream.p50_ms), ("p99", upstream.p99_ms)].into_iter();
            let times = times.filter_map(|(name, ms)| Some(format!(", {name} {:.1} ms", ms?))).collect::<String>();
            line("upstream", format!("{} {health}{counts}{times}", upstream.address));
        }
        for certificate in &self.certificates {
            let names = certificate.names.join(", ");
            line("certificate", format!("{} {names}, valid until {}", certificate.listener, certificate.not_after));
        }
        for degraded in self.degraded() {
            line("DEGRADED", Degraded::describe(&degraded));
        }
        if !self.settings.waiting.is_empty() {
            line("RESTART", format!("needed for changes of {}", self.settings.waiting.join(", ")));
        }
        lines.concat()
    }
}

/// Formats a size: `96 KiB`.
fn bytes(count: u64) -> String {
    match count {
        0..1_024 => format!("{count} bytes"),
        1_024..1_048_576 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", number(count >> 20)),
    }
}

impl Top {
    /// Describes all rules, each with its keys.
    pub(crate) fn describe(&self) -> String {
        if self.off {
            return "no keys are recorded: the rule file has `top_keys: off`\n".to_owned();
        }
        let window = visible(&self.window);
        if self.rules.is_empty() {
            let hint = if window == "minute" { "; for the last hour use `--window hour`" } else { "" };
            return format!("no rule has counted a request in the last {window}{hint}\n");
        }
        self.rules.iter().map(|rule| rule.describe(&window)).collect::<Vec<_>>().join("\n")
    }
}

impl TopRule {
    fn describe(&self, window: &str) -> String {
        let by = if self.by.is_empty() { String::new() } else { format!(", by {}", visible(&self.by)) };
        let shadow = if self.shadow { " (shadow)" } else { "" };
        let denied = if self.shadow { "would deny" } else { "denied" };
        let lists = [(denied, &self.denied), ("delayed", &self.delayed), ("allowed", &self.allowed)];
        // Only some of the allowed requests are counted.
        let about = if self.allowed.total > 0 { "about " } else { "" };
        let totals = [("", denied, &self.denied), ("", "delayed", &self.delayed), (about, "allowed", &self.allowed)];
        let totals = totals.map(|(about, name, keys)| format!("{about}{} {name}", number(keys.total))).join(", ");
        let mut text = format!("{}{shadow}{by}, last {window}: {totals}\n", visible(&self.rule));
        for (name, TopKeys { keys, .. }) in lists {
            for (index, key) in keys.iter().enumerate() {
                let name = if index == 0 { name } else { "" };
                let since = time_of(&key.since).map(|time| format!("  since {time}")).unwrap_or_default();
                text.push_str(&format!("  {name:<10} {:>12}  {}{since}\n", number(key.count), key_text(&key.text)));
            }
        }
        text
    }
}

/// Returns the time of day of a date, such as `08:59:10Z`.
fn time_of(date: &str) -> Option<String> {
    let (_, time) = date.split_once('T')?;
    let (time, _) = time.split_once(['.', 'Z'])?;
    Some(format!("{}Z", visible(time)))
}

#[cfg(test)]
mod tests;
