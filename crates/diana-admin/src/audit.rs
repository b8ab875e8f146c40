//! The audit log: each change with its author and time, and the values before and after.
//!
//! Changes come from the admin API, from clients of the Redis protocol, from signals, and from the sources of the rules.
//!
//! ```text
//!  change ──▶ the program's log, one line
//!        ├──▶ the last 100, in memory: `GET /audit`
//!        └──▶ the file of `admin.audit_log`: a line of JSON, by a thread of its own
//! ```
//!
//! # What always holds (tests/it/audit.rs)
//! - Keys are written in the form that `log_keys` sets, and no token and no value of a `${VARIABLE}` is shown.
//! - The memory is bounded, and recording a change never waits for a disk. A line that can't be written is counted.

mod endpoint;
mod file;

use crate::rule_change::{Change, Changed, shortened};
use crate::section::TokenChange;
use crate::status::formatted;
use diana::{Clock, Cost, KeyChange, KeyOperation, KeyStatus, Limiter, Quota};
use diana_net::LogFile;
pub(super) use endpoint::audit;
use file::AuditFile;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The maximum number of changes in memory.
const MAX_ENTRIES: usize = 100;
/// The maximum number of rules in each list of a change; `/changes` has more.
const MAX_LISTED: usize = 20;
/// The number of changes that the program's log shows at once, and then per second: a client must not be able to fill it.
const LINES_AT_ONCE: u64 = 100;
const LINES_PER_SECOND: u64 = 10;

/// The author of a change.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The origin of the change: `admin`, `resp` or `signal`.
    pub source: &'a str,
    /// The name of the token.
    pub name: Option<&'a str>,
    /// The client's address.
    pub client: Option<SocketAddr>,
}

/// The audit log; see the [module](self).
#[derive(Debug)]
pub struct AuditLog {
    clock: Arc<dyn Clock>,
    /// The newest first.
    entries: Mutex<VecDeque<Arc<AuditEntry>>>,
    file: Option<AuditFile>,
    /// Limits the lines in the program's log.
    lines: Option<Limiter>,
    not_logged: AtomicU64,
}

/// A change, as `/audit` and the file show it.
#[derive(Debug, Serialize)]
struct AuditEntry {
    when: String,
    action: &'static str,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    #[serde(flatten)]
    what: Option<What>,
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// The subject of a change.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum What {
    Key {
        rule: String,
        /// The key, in the form that `log_keys` sets.
        key: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<u64>,
        before: Vec<Remaining>,
        after: Vec<Remaining>,
    },
    Rules {
        /// The number of active rules afterwards.
        rules: usize,
        added: Vec<String>,
        removed: Vec<String>,
        changed: Vec<Changed>,
        /// The number of rules that are not listed.
        more: usize,
    },
    Tokens {
        tokens: TokenChange,
    },
}

/// The remaining permits of a limit.
#[derive(Debug, Serialize)]
struct Remaining {
    name: String,
    limit: u64,
    remaining: u64,
}

impl AuditLog {
    /// Creates an empty log.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let quota = Quota::per_second(LINES_PER_SECOND).and_then(|quota| quota.with_burst(LINES_AT_ONCE));
        let (entries, lines) = (Mutex::default(), quota.ok().map(Limiter::new));
        Self { clock, entries, file: None, lines, not_logged: AtomicU64::new(0) }
    }

    /// Writes each change to a file, too, as a line of JSON.
    ///
    /// # Errors
    /// The thread that writes it can't be started.
    pub fn write_to(self, file: LogFile) -> io::Result<Self> {
        Ok(Self { file: Some(AuditFile::start(file)?), ..self })
    }

    /// Records that a key was changed, or that the store failed to change it.
    pub fn key_changed(&self, actor: Actor<'_>, change: &KeyChange) {
        let (action, cost) = match change.operation {
            KeyOperation::Refund(cost) => ("refund", Some(cost)),
            KeyOperation::Charge(cost) => ("charge", Some(cost)),
            // The only other operation of this version.
            _ => ("reset", None),
        };
        let mut entry = self.entry(action, actor);
        if let Err(error) = &change.after {
            (entry.ok, entry.error) = (false, Some(error.to_string()));
        }
        entry.what = Some(What::Key {
            rule: change.rule.clone(),
            key: change.logged_key.as_deref().map(shortened),
            cost: cost.map(Cost::get),
            before: remaining(Some(&change.before)),
            after: remaining(change.after.as_ref().ok()),
        });
        self.log(&entry);
        self.record(entry);
    }

    /// Records that a reload of the rules and certificates was requested. Changed rules are recorded on their own.
    pub fn reload_requested(&self, actor: Actor<'_>) {
        let entry = self.entry("reload", actor);
        self.log(&entry);
        self.record(entry);
    }

    /// Records that rules were loaded, or a document rejected.
    pub(crate) fn rules_loaded(&self, change: &Change) {
        let action = if change.is_start { "start" } else { "rules" };
        let mut entry = self.entry(action, Actor { source: &change.source, name: None, client: None });
        let cut = |list: &[String]| list.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>();
        let (added, removed) = (cut(&change.added), cut(&change.removed));
        let changed = change.changed.iter().take(MAX_LISTED).cloned().collect::<Vec<_>>();
        let listed = added.len() + removed.len() + changed.len();
        let total = change.added.len() + change.removed.len() + change.changed.len() + change.more;
        let more = total.saturating_sub(listed);
        entry.what = Some(What::Rules { rules: change.rules, added, removed, changed, more });
        (entry.ok, entry.error) = (change.error.is_none(), change.error.clone());
        // A start and a rejected document have lines of their own in the program's log.
        if entry.ok && !change.is_start {
            self.log(&entry);
        }
        self.record(entry);
    }

    /// Records that the file has other tokens, which apply from now on.
    pub fn tokens_changed(&self, source: &str, change: TokenChange) {
        let mut entry = self.entry("tokens", Actor { source, name: None, client: None });
        entry.what = Some(What::Tokens { tokens: change });
        self.log(&entry);
        self.record(entry);
    }

    /// Waits until the lines so far are written to the file, for at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        if let Some(file) = &self.file {
            file.flush(timeout);
        }
    }

    fn entry(&self, action: &'static str, actor: Actor<'_>) -> AuditEntry {
        AuditEntry {
            when: formatted(self.clock.now()),
            action,
            source: actor.source.to_owned(),
            who: actor.name.map(str::to_owned),
            client: actor.client.map(|client| client.to_string()),
            what: None,
            ok: true,
            error: None,
        }
    }

    fn record(&self, entry: AuditEntry) {
        if let Some(file) = &self.file {
            file.write(&entry);
        }
        let mut entries = self.entries.lock();
        entries.truncate(MAX_ENTRIES - 1);
        entries.push_front(Arc::new(entry));
    }

    /// Writes a line to the program's log.
    fn log(&self, entry: &AuditEntry) {
        if !self.lines.as_ref().is_some_and(|lines| lines.check().is_granted()) {
            self.not_logged.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let not_logged = Some(self.not_logged.swap(0, Ordering::Relaxed)).filter(|count| *count > 0);
        let AuditEntry { action, source, who, client, error, .. } = entry;
        let (who, client, error) = (who.as_deref(), client.as_deref(), error.as_deref());
        match &entry.what {
            Some(What::Key { rule, key, cost, before, after }) => {
                let (key, before, after) = (key.as_deref(), left(before), left(after));
                tracing::info!(
                    source,
                    who,
                    client,
                    rule,
                    key,
                    cost,
                    before,
                    after,
                    error,
                    not_logged,
                    "audit: {action}"
                );
            }
            Some(What::Rules { rules, added, removed, changed, .. }) => {
                let (added, removed) = (listed(added), listed(removed));
                let changed = changed.iter().map(|changed| changed.rule.clone()).collect::<Vec<_>>();
                let changed = listed(&changed);
                tracing::info!(source, rules, added, removed, changed, not_logged, "audit: {action}");
            }
            Some(What::Tokens { tokens: TokenChange { added, removed, changed } }) => {
                let (added, removed, changed) = (listed(added), listed(removed), listed(changed));
                tracing::info!(source, added, removed, changed, not_logged, "audit: {action}");
            }
            None => tracing::info!(source, who, client, not_logged, "audit: {action}"),
        }
    }
}

fn remaining(status: Option<&KeyStatus>) -> Vec<Remaining> {
    let limits = status.iter().flat_map(|status| &status.limits);
    limits.map(|limit| Remaining { name: limit.name.clone(), limit: limit.limit, remaining: limit.remaining }).collect()
}

/// Returns a text such as `0 of 3`; `None` if it is unknown.
fn left(limits: &[Remaining]) -> Option<String> {
    let texts = limits.iter().map(|limit| format!("{} of {}", limit.remaining, limit.limit)).collect::<Vec<_>>();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn listed(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(", "))
}
