//! The audit log in words: `diana audit` and `diana reload`.

use super::{key_text, number};
use crate::command::admin::model::{Audit, AuditEntry, AuditedTokens, KeyLimit, Reloaded};
use crate::command::output::{count_of, visible};

impl Audit {
    /// Describes the changes, the newest first.
    pub(crate) fn describe(&self) -> String {
        if self.entries.is_empty() {
            return "no change since the program was started\n".to_owned();
        }
        let mut text = self.entries.iter().map(AuditEntry::describe).collect::<String>();
        if self.dropped > 0 {
            text.push_str(&format!("{} changes are missing in the file of the audit log\n", number(self.dropped)));
        }
        text
    }
}

impl AuditEntry {
    /// Describes a change: a line, and one for each changed rule.
    fn describe(&self) -> String {
        let mut text = format!("{} {}: {}\n", visible(&self.when), self.by(), self.what());
        for changed in &self.changed {
            let (before, after) = (visible(&changed.before), visible(&changed.after));
            text.push_str(&format!("  {}: {before} -> {after}\n", visible(&changed.rule)));
        }
        if let Some(error) = &self.error {
            // The line of a document's problem; the server has the whole text.
            text.push_str(&format!("  {}\n", visible(error.lines().next().unwrap_or_default())));
        }
        text
    }

    /// Describes the author: `alice (admin, 10.0.0.7:51234)`.
    fn by(&self) -> String {
        let details = [Some(&self.source), self.client.as_ref()].into_iter().flatten().map(|text| visible(text));
        let details = details.collect::<Vec<_>>().join(", ");
        match &self.who {
            Some(who) => format!("{} ({details})", visible(who)),
            None => details,
        }
    }

    /// Describes the change: `refund 2 to alice in each-account, 0 of 3 left -> 2 of 3 left`.
    fn what(&self) -> String {
        let failed = if self.error.is_some() { ", failed" } else { "" };
        let Some(rule) = &self.rule else {
            let rules = count_of(usize::try_from(self.rules).unwrap_or(usize::MAX), "rule");
            return match (&*self.action, self.lists()) {
                ("reload", _) => format!("reload{failed}"),
                ("start", _) => format!("started with {rules}"),
                ("tokens", _) => format!("admin tokens: {}", self.tokens.describe()),
                _ if self.error.is_some() => "rules rejected".to_owned(),
                (_, lists) if lists.is_empty() => format!("{rules} loaded, none differs"),
                (_, lists) => format!("{rules} loaded, {}", lists.join(", ")),
            };
        };
        let cost = self.cost.map(|cost| format!(" {}", number(cost))).unwrap_or_default();
        let key = self.key.as_deref().map(|key| format!(" for {}", key_text(key))).unwrap_or_default();
        let (before, after) = (left(&self.before), left(&self.after));
        format!("{}{cost}{key} in {}, {before} -> {after}{failed}", visible(&self.action), visible(rule))
    }

    /// Returns the added and removed rules, and the number of changed ones.
    fn lists(&self) -> Vec<String> {
        let named = [("added", &self.added), ("removed", &self.removed)].into_iter();
        let named = named.filter(|(_, names)| !names.is_empty());
        let mut lists = named.map(|(what, names)| format!("{what} {}", visible(&names.join(", ")))).collect::<Vec<_>>();
        if !self.changed.is_empty() {
            lists.push(format!("changed {}", self.changed.len()));
        }
        if self.more > 0 {
            lists.push(format!("{} more", number(self.more)));
        }
        lists
    }
}

impl AuditedTokens {
    /// Describes the change: `added alice (operate), removed grafana (read)`.
    fn describe(&self) -> String {
        let lists = [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)].into_iter();
        let lists = lists.filter(|(_, names)| !names.is_empty());
        lists.map(|(what, names)| format!("{what} {}", visible(&names.join(", ")))).collect::<Vec<_>>().join("; ")
    }
}

fn left(limits: &[KeyLimit]) -> String {
    if limits.is_empty() {
        return "unknown".to_owned();
    }
    let texts = limits.iter().map(|limit| format!("{} of {} left", number(limit.remaining), number(limit.limit)));
    texts.collect::<Vec<_>>().join(" and ")
}

impl Reloaded {
    /// Describes the active rules and the changed settings.
    pub(crate) fn describe(&self) -> String {
        let rules = count_of(usize::try_from(self.rules).unwrap_or(usize::MAX), "rule");
        let from = self.source.as_ref().map(|source| format!(" from {}", visible(&source.name))).unwrap_or_default();
        let mut text = match (self.ok, self.keeps_rules()) {
            (true, _) => format!("reloaded: {rules}{from}\n"),
            (false, true) => format!("not reloaded: the active rules stay ({rules}{from})\n"),
            (false, false) => format!("not fully reloaded: {rules}{from} are active\n"),
        };
        for (what, fields) in
            [("applied since the start", &self.settings.applied), ("waits for a restart", &self.settings.waiting)]
        {
            if !fields.is_empty() {
                text.push_str(&format!("{what}: {}\n", visible(&fields.join(", "))));
            }
        }
        text
    }

    /// Returns whether the active rules are those of a file that is invalid now. Beside a config server, one may have been loaded.
    fn keeps_rules(&self) -> bool {
        self.source.as_ref().is_some_and(|source| {
            source.active == "local" && source.failing.iter().any(|error| error.origin == "local")
        })
    }

    /// Describes what failed: the rule file or the config server, and why.
    pub(crate) fn failures(&self) -> impl Iterator<Item = String> {
        self.source.iter().flat_map(|source| &source.failing).map(|error| {
            let source = if error.origin == "local" { "rule file" } else { "config server" };
            format!("{source}: {}", error.what.lines().map(visible).collect::<Vec<_>>().join("\n"))
        })
    }
}
