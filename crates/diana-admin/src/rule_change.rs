//! One change of the rules, and the difference between two versions of a rule in words.

use diana::Timestamp;
use diana_rules::describe;
use diana_rules::logged_keys::LogLevel;
use diana_rules::rule::Rule;
use serde::Serialize;

/// The maximum length of a description, in bytes.
const MAX_LENGTH: usize = 2000;

/// One change of the rules, or a document that was rejected.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) when: Timestamp,
    pub(crate) source: String,
    pub(crate) is_start: bool,
    pub(crate) rules: usize,
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<Changed>,
    /// The number of rules that are not listed.
    pub(crate) more: usize,
    pub(crate) error: Option<String>,
}

/// A rule before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    pub(crate) rule: String,
    before: String,
    after: String,
}

/// Describes what differs: the parts of the descriptions, else the lines of the texts; and the level of the log, which
/// the file may set for all its rules.
pub(crate) fn describe((before, after): (&Rule, &Rule), texts: &(String, String)) -> Changed {
    // The description of a rule has the values of its variables, which may be secret.
    let has_variables = texts.0.contains("${") || texts.1.contains("${");
    let words = (!has_variables).then(|| words(before, after));
    let words = words.filter(|(before, after)| before != after);
    let levels = (before.log != after.log).then(|| (log(before), log(after)));
    let (rule, has_same_text) = (after.name.clone(), texts.0 == texts.1);
    let (before, after) = match (words, levels) {
        (None, Some((old, new))) if has_same_text => (old.to_owned(), new.to_owned()),
        (None, Some(levels)) => with_level(lines(texts), levels),
        (Some(words), Some(levels)) => with_level(words, levels),
        (words, None) => words.unwrap_or_else(|| lines(texts)),
    };
    Changed { rule, before, after }
}

/// Adds the level of the log, unless the texts have it.
fn with_level((before, after): (String, String), (old, new): (&str, &str)) -> (String, String) {
    let with = |text: String, level: &str| match &*text {
        "" => level.to_owned(),
        known if known.contains("log: ") => text,
        _ => format!("{text}; {level}"),
    };
    (with(before, old), with(after, new))
}

/// Returns the level at which the denials of a rule are logged, as it is written.
fn log(rule: &Rule) -> &'static str {
    match rule.log {
        LogLevel::Off => "log: off",
        LogLevel::Warn => "log: warn",
        LogLevel::Error => "log: error",
        // The only other level of this version.
        _ => "log: info",
    }
}

/// Returns the parts of the descriptions that differ.
fn words(before: &Rule, after: &Rule) -> (String, String) {
    let parts = |rule: &Rule| {
        let words = describe::rule(rule);
        [words.key, words.matches, words.limit, words.over_limit, words.notes.join("; ")]
    };
    let differing = parts(before).into_iter().zip(parts(after)).filter(|(before, after)| before != after);
    let (before, after): (Vec<_>, Vec<_>) = differing.unzip();
    let joined = |parts: Vec<String>| {
        let parts = parts.into_iter().map(|part| if part.is_empty() { "none".to_owned() } else { part });
        shortened(&parts.collect::<Vec<_>>().join("; "))
    };
    (joined(before), joined(after))
}

/// Returns the lines of each text that the other does not have; both texts if these are the same.
fn lines((before, after): &(String, String)) -> (String, String) {
    let without = |text: &str, other: &str| {
        let differs = |line: &&str| !line.trim().is_empty() && !other.lines().any(|other| other.trim() == line.trim());
        text.lines().filter(differs).map(str::trim).collect::<Vec<_>>().join("\n")
    };
    let (old, new) = (without(before, after), without(after, before));
    if old == new { (shortened(before), shortened(after)) } else { (shortened(&old), shortened(&new)) }
}

/// Returns a text of bounded length.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_LENGTH {
        return text.to_owned();
    }
    let end = (0..=MAX_LENGTH).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    format!("{} [...]", text.get(..end).unwrap_or_default())
}
