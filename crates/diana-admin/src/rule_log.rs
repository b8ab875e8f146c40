//! The active rules as they are written, and the last changes: what changed, when, and by which source.
//!
//! # What always holds
//! - No value of a `${VARIABLE}` is shown: a rule's text is that of its document, and a rule with variables is described
//!   by its text.
//! - The memory is bounded: 50 changes, each with at most 100 rules and texts of at most 2000 characters.

mod endpoint;

use crate::audit::AuditLog;
use crate::rule_change::{self, Change, shortened};
use diana::{Clock, Timestamp};
use diana_config::{Origin, SourceError};
use diana_rules::{Document, RuleFile};
pub(super) use endpoint::{changes, rule};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The maximum number of changes that are stored.
const MAX_CHANGES: usize = 50;
/// The maximum number of rules that a change lists: a config server may replace ten thousand.
const MAX_LISTED: usize = 100;

/// The texts and the changes of the active rules. The program reports each loaded and each rejected document to it.
#[derive(Debug)]
pub struct RuleLog {
    clock: Arc<dyn Clock>,
    state: Mutex<RuleLogState>,
    audit: Option<Arc<AuditLog>>,
}

#[derive(Debug, Default)]
struct RuleLogState {
    /// The last applied rules, which are recorded once their source is known.
    applied: Option<LoadedRules>,
    active: Option<LoadedRules>,
    source: String,
    /// The time at which each rule became active as it is.
    since: HashMap<String, Timestamp>,
    /// The newest first.
    changes: VecDeque<Change>,
}

/// Rules, and the document that they are written in.
#[derive(Clone, Debug)]
struct LoadedRules {
    file: Arc<RuleFile>,
    document: Arc<Document>,
}

impl RuleLog {
    /// Creates an empty log.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default(), audit: None }
    }

    /// Records each loaded and each rejected document in an audit log, too.
    #[must_use]
    pub fn audited(self, audit: Arc<AuditLog>) -> Self {
        Self { audit: Some(audit), ..self }
    }

    /// Stores rules that were applied, and the document that they come from; [`loaded`](Self::loaded) follows.
    pub fn applied(&self, file: Arc<RuleFile>, document: Document) {
        self.state.lock().applied = Some(LoadedRules { file, document: Arc::new(document) });
    }

    /// Records that the applied rules are active.
    pub fn loaded(&self, origin: Origin, name: &str) {
        let when = self.clock.now();
        let state = &mut *self.state.lock();
        let Some(loaded) = state.applied.take() else { return };
        state.source = source(origin, name);
        let mut change = Change::new(when, state.source.clone());
        change.rules = loaded.file.rules.len();
        change.is_start = state.active.is_none();
        let since = state.compare(&loaded, &mut change);
        (state.since, state.active) = (since, Some(loaded));
        self.record(state, change);
    }

    /// Records that a document was rejected.
    pub fn rejected(&self, error: &SourceError) {
        let source = match error.origin {
            Origin::Local => "local file",
            _ => "config server",
        };
        let mut change = Change::new(error.when, source.to_owned());
        change.error = Some(shortened(&error.what));
        let state = &mut *self.state.lock();
        change.rules = state.active.as_ref().map_or(0, |active| active.file.rules.len());
        self.record(state, change);
    }

    fn record(&self, state: &mut RuleLogState, change: Change) {
        if let Some(audit) = &self.audit {
            audit.rules_loaded(&change);
        }
        state.changes.truncate(MAX_CHANGES - 1);
        state.changes.push_front(change);
    }
}

impl RuleLogState {
    /// Lists what differs from the active rules; returns since when each of the new rules is active.
    fn compare(&self, loaded: &LoadedRules, change: &mut Change) -> HashMap<String, Timestamp> {
        let before = self.active.iter().flat_map(|active| active.file.rules.iter().map(move |rule| (active, rule)));
        let mut before = before.map(|(active, rule)| (&*rule.name, (active, rule))).collect::<HashMap<_, _>>();
        let mut since = HashMap::with_capacity(loaded.file.rules.len());
        for rule in &loaded.file.rules {
            let when = match before.remove(&*rule.name) {
                None => {
                    listed(&mut change.added, &mut change.more, || rule.name.clone());
                    change.when
                }
                Some((_, old)) if old.is_same(rule) => self.since.get(&rule.name).copied().unwrap_or(change.when),
                Some((active, old)) => {
                    let texts = (active.document.item_text(old.span), loaded.document.item_text(rule.span));
                    listed(&mut change.changed, &mut change.more, || rule_change::describe((old, rule), &texts));
                    change.when
                }
            };
            since.insert(rule.name.clone(), when);
        }
        let mut removed = before.into_values().map(|(_, rule)| rule).collect::<Vec<_>>();
        removed.sort_by_key(|rule| rule.span);
        for rule in removed {
            listed(&mut change.removed, &mut change.more, || rule.name.clone());
        }
        since
    }
}

impl Change {
    fn new(when: Timestamp, source: String) -> Self {
        let (added, removed, changed) = (Vec::new(), Vec::new(), Vec::new());
        Self { when, source, is_start: false, rules: 0, added, removed, changed, more: 0, error: None }
    }
}

fn listed<T>(list: &mut Vec<T>, more: &mut usize, entry: impl FnOnce() -> T) {
    if list.len() < MAX_LISTED {
        list.push(entry());
    } else {
        *more += 1;
    }
}

fn source(origin: Origin, name: &str) -> String {
    match origin {
        Origin::Local => format!("local file {name}"),
        Origin::LastGood => format!("config server {name} (last good document)"),
        _ => format!("config server {name}"),
    }
}
