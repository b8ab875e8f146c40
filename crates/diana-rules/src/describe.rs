//! Descriptions of rules in plain English.
//!
//! They are made from the parsed rule, not from its text, so that they show the actual behavior.

mod limit;
mod store;
mod table;
#[cfg(test)]
mod tests;

use crate::rule::{HeldUntil, Rule, option, over_limit};
pub use crate::words::and;
pub use diana_core::words::{duration, period};
use std::fmt;
pub use table::table;

/// The description of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleDescription {
    /// The keys that it counts: `each account`, `everyone together`.
    pub key: String,
    /// The requests that it matches: `GET /search/**`.
    pub matches: String,
    /// The limit: `100 a second, up to 200 at once: at most 300 in any second`.
    pub limit: String,
    /// The handling of requests over the limit: `denied with 429`.
    pub over_limit: String,
    /// Other settings: listed keys, overrides, the cost of a request.
    pub notes: Vec<String>,
}

/// Describes a rule.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile, describe};
///
/// let document = Document::new("diana.yaml", "rules: [{name: a, by: ip/24, limit: {rate: 100/s, burst: 200}, status: 429}]");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(
///     describe::rule(&file.rules[0]).to_string(),
///     "each /24 network or IPv6 /64, all requests: 100 a second, up to 200 at once: at most 300 in any second; over the limit: denied with 429",
/// );
/// # Ok::<(), diana_rules::Problems>(())
/// ```
pub fn rule(rule: &Rule) -> RuleDescription {
    RuleDescription {
        key: rule.by.describe(),
        matches: rule.matches.to_string(),
        limit: limit::of_rule(rule),
        over_limit: over_limit::describe(rule),
        notes: notes(rule),
    }
}

impl fmt::Display for RuleDescription {
    /// One sentence, followed by the notes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, matches, limit, over_limit, notes } = self;
        write!(f, "{key}, {matches}: {limit}; over the limit: {over_limit}")?;
        notes.iter().try_for_each(|note| write!(f, "; {note}"))
    }
}

/// What the limits of a rule need to be known beside their description, and what its options say.
fn notes(rule: &Rule) -> Vec<String> {
    let without_edge = rule.limits.iter().find_map(limit::without_edge);
    let edge = without_edge.map(|settings| format!("{settings} never allows more than the limit across an edge"));
    let held = (rule.held_until == HeldUntil::UpstreamDone)
        .then(|| "a permit is held until the upstream has responded, even if the client disconnects".to_owned());
    let options = option::rule_options().filter_map(|option| (option.describe)(rule));
    edge.into_iter().chain(held).chain(options).collect()
}
