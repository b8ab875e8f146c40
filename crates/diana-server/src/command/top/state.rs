//! The state of the view: the last answers of the server, and what the user has chosen.
//!
//! What is chosen is kept by name, so it stays the same when the order changes. Until the user chooses a rule, it is the
//! first one.

use super::Window;
use super::rates::{Rates, RuleRates, precise};
use super::theme::Theme;
use super::worker::{KeyName, Watch};
use crate::command::admin::AdminError;
use crate::command::admin::model::{History, RuleCounts, RuleList, RuleSummary, Status, Top, TopKey, TopKeys, TopRule};
use ratatui::crossterm;
use std::cmp::Ordering;
use std::time::Duration;

/// Whatever changes the state.
#[derive(Debug)]
pub(super) enum Event {
    /// A key, or another size.
    Terminal(crossterm::event::Event),
    Update(Box<Snapshot>),
    /// The server is unreachable.
    Lost(AdminError),
    Answer(Answer),
    /// The program should end, by a signal or since the terminal is gone.
    Quit,
}

/// The result of a poll.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    /// The time of the poll, since the start of the view.
    pub(super) at: Duration,
    pub(super) watch: Watch,
    pub(super) status: Status,
    pub(super) rules: RuleList,
    /// The keys of the chosen rule; `None` if the server has no `/top`.
    pub(super) top: Option<Top>,
    /// The keys of all rules that contain the text of the filter.
    pub(super) filtered_top: Option<Top>,
    /// All requests in the last minute; `None` if the server has no `/history`.
    pub(super) now: Option<History>,
    /// All requests in the window.
    pub(super) history: Option<History>,
    /// The requests of the chosen rule in the window.
    pub(super) rule_history: Option<History>,
}

/// The server's answer to a request of the user, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) title: &'static str,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Denied,
    Allowed,
    Delayed,
    Name,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Rules,
    Keys,
}

/// A list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyList {
    Denied,
    Delayed,
    Allowed,
}

/// A dialog over the view, which gets the keys that are typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dialog {
    Help,
    /// The text of the filter is edited.
    Filter,
    /// A limit is typed for `what-if`.
    WhatIf {
        rule: String,
        limit: String,
    },
    ConfirmReset(KeyName),
    /// A cost is typed.
    Refund {
        key: KeyName,
        cost: String,
    },
    /// The server has not answered yet.
    Waiting(&'static str),
    Message(Answer),
}

/// A line of the list of rules.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) rule: RuleSummary,
    /// `None` until there are two polls.
    pub(super) rates: Option<RuleRates>,
}

/// The state.
#[derive(Debug)]
pub(super) struct App {
    pub(super) admin: String,
    pub(super) theme: Theme,
    pub(super) snapshot: Option<Snapshot>,
    /// The reason why the last poll failed, if it did.
    pub(super) lost: Option<AdminError>,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) window: Window,
    pub(super) focus: Focus,
    pub(super) list: KeyList,
    pub(super) dialog: Option<Dialog>,
    /// The rules that the filter selects, in order.
    pub(super) rows: Vec<Row>,
    pub(super) is_done: bool,
    rates: Rates,
    chosen_rule: Option<String>,
    chosen_key: Option<String>,
}

impl App {
    pub(super) fn new(admin: String, window: Window, rule: Option<String>, filter: String) -> Self {
        Self {
            admin,
            theme: Theme::from_environment(),
            snapshot: None,
            lost: None,
            sort: Sort::Denied,
            filter,
            window,
            focus: Focus::Rules,
            list: KeyList::Denied,
            dialog: None,
            rows: Vec::new(),
            is_done: false,
            rates: Rates::default(),
            chosen_rule: rule,
            chosen_key: None,
        }
    }

    /// Applies a poll.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.rates.add(snapshot.at, &snapshot.status.started, &snapshot.rules);
        self.lost = None;
        self.snapshot = Some(snapshot);
        self.arrange();
    }

    /// Filters and sorts the rules again.
    pub(super) fn arrange(&mut self) {
        let Some(snapshot) = &self.snapshot else { return };
        let find = self.filter.to_lowercase();
        let has_key = |name: &str| {
            let matches = snapshot.filtered_top.as_ref().filter(|_| snapshot.watch.find == self.filter);
            matches.is_some_and(|top| top.rules.iter().any(|rule| rule.rule == name))
        };
        let selected = snapshot.rules.rules.iter().filter(|rule| names(rule, &find) || has_key(&rule.name));
        let rows = selected.map(|rule| Row { rule: rule.clone(), rates: self.rates.get(&rule.name, rule.shadow) });
        self.rows = rows.collect();
        let sort = self.sort;
        self.rows.sort_by(|one, other| compare(one, other, sort));
    }

    /// Returns the subject of the next polls.
    pub(super) fn watch(&self) -> Watch {
        let rule = self.row().map(|row| row.rule.name.clone()).or_else(|| self.chosen_rule.clone());
        Watch { rule, window: self.window, find: self.filter.clone() }
    }

    /// Returns the index of the chosen rule.
    pub(super) fn row_index(&self) -> usize {
        let is_chosen = |row: &Row| self.chosen_rule.as_deref() == Some(&*row.rule.name);
        self.rows.iter().position(is_chosen).unwrap_or(0)
    }

    /// Returns the chosen rule.
    pub(super) fn row(&self) -> Option<&Row> {
        self.rows.get(self.row_index())
    }

    /// Chooses a rule by its index; the first one stays the first, whichever that is.
    pub(super) fn choose_row(&mut self, index: usize) {
        let index = index.min(self.rows.len().saturating_sub(1));
        let row = self.rows.get(index).filter(|_| index > 0);
        self.chosen_rule = row.map(|row| row.rule.name.clone());
        self.chosen_key = None;
    }

    /// Returns the keys of the chosen rule, if the server has sent them already.
    pub(super) fn top(&self) -> Option<&TopRule> {
        let (snapshot, row) = (self.snapshot.as_ref()?, self.row()?);
        // A rule that is listed for its keys has only those that were found.
        let by_name = names(&row.rule, &self.filter.to_lowercase());
        let top = if by_name { &snapshot.top } else { &snapshot.filtered_top };
        top.as_ref()?.rules.iter().find(|top| top.rule == row.rule.name)
    }

    /// Returns a chart of the chosen rule, if the server has sent it already.
    pub(super) fn rule_history(&self) -> Option<&History> {
        let (snapshot, row) = (self.snapshot.as_ref()?, self.row()?);
        let is_current =
            snapshot.watch.rule.as_deref() == Some(&*row.rule.name) && snapshot.watch.window == self.window;
        snapshot.rule_history.as_ref().filter(|_| is_current)
    }

    /// Returns the keys of the list that is chosen.
    pub(super) fn keys(&self) -> &[TopKey] {
        self.top().map_or(&[], |top| &self.list.select(top).keys)
    }

    /// Returns the index of the chosen key.
    pub(super) fn key_index(&self) -> usize {
        let is_chosen = |key: &TopKey| self.chosen_key.as_deref() == Some(&*key.text);
        self.keys().iter().position(is_chosen).unwrap_or(0)
    }

    /// Chooses a key by its index.
    pub(super) fn choose_key(&mut self, index: usize) {
        let index = index.min(self.keys().len().saturating_sub(1));
        self.chosen_key = self.keys().get(index).filter(|_| index > 0).map(|key| key.text.clone());
    }

    /// Chooses a list of keys.
    pub(super) fn choose_list(&mut self, list: KeyList) {
        self.list = list;
        self.chosen_key = None;
    }

    /// Returns the chosen key as the API names it, or why it can't be named.
    pub(super) fn key_name(&self) -> Result<KeyName, String> {
        let row = self.row().ok_or("no rule is chosen")?;
        let key = self.keys().get(self.key_index());
        let key = key.ok_or_else(|| format!("no key was {} in the last {}", self.list.name(), self.window.name()))?;
        let parts = key.key.clone();
        let parts = parts.ok_or_else(|| format!("`{}` is not a whole key, so it can't be named", key.text))?;
        Ok(KeyName { rule: row.rule.name.clone(), parts })
    }

    /// Returns all requests a second: an average of the last seconds.
    pub(super) fn totals(&self) -> Option<RuleRates> {
        let now = self.snapshot.as_ref()?.now.as_ref()?;
        // The newest second is not over yet.
        let average = |values: &[u64]| {
            let complete = values.split_last().map_or(&[][..], |(_, complete)| complete);
            let last = &complete[complete.len().saturating_sub(5)..];
            let sum = last.iter().fold(0, |sum: u64, value| sum.saturating_add(*value));
            if last.is_empty() { 0.0 } else { precise(sum) / precise(last.len() as u64) }
        };
        let (denied, allowed) = (average(&now.denied), average(&now.allowed));
        Some(RuleRates { denied, allowed, delayed: average(&now.delayed) })
    }
}

/// Returns whether a rule's name has a text in lower case.
fn names(rule: &RuleSummary, text: &str) -> bool {
    text.is_empty() || rule.name.to_lowercase().contains(text)
}

fn compare(one: &Row, other: &Row, sort: Sort) -> Ordering {
    let rates = |row: &Row| row.rates.unwrap_or_default();
    let (a, b) = (rates(one), rates(other));
    let (counts, others) = (one.rule.counts, other.rule.counts);
    // A shadow rule denies nothing, so it comes after rules that do. Rules without requests now are in the order of their
    // requests since the start.
    let by_counts = match sort {
        Sort::Denied => {
            let enforced = |row: &Row, rates: RuleRates| if row.rule.shadow { 0.0 } else { rates.denied };
            let denied = |counts: RuleCounts| counts.denied.max(counts.shadow_denied);
            let now = enforced(other, b).total_cmp(&enforced(one, a)).then(b.denied.total_cmp(&a.denied));
            now.then(denied(others).cmp(&denied(counts)))
        }
        Sort::Allowed => b.allowed.total_cmp(&a.allowed).then(others.allowed.cmp(&counts.allowed)),
        Sort::Delayed => b.delayed.total_cmp(&a.delayed).then(others.delayed.cmp(&counts.delayed)),
        Sort::Name => Ordering::Equal,
    };
    by_counts.then_with(|| one.rule.name.cmp(&other.rule.name))
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied/s",
            Self::Allowed => "allowed/s",
            Self::Delayed => "delayed/s",
            Self::Name => "name",
        }
    }
}

impl KeyList {
    pub(super) const ALL: [Self; 3] = [Self::Denied, Self::Delayed, Self::Allowed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Delayed => "delayed",
            Self::Allowed => "allowed",
        }
    }

    pub(super) fn select(self, top: &TopRule) -> &TopKeys {
        match self {
            Self::Denied => &top.denied,
            Self::Delayed => &top.delayed,
            Self::Allowed => &top.allowed,
        }
    }
}
