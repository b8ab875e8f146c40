//! A line of a document as it is displayed under a problem: passwords and tokens are redacted, since problems are
//! logged.
//!
//! A document that can't be parsed has no tree, so this works on the text alone, and redacts too much rather than too
//! little.

use std::ops::Range;

/// Fields whose value is a secret, and fields whose value is an address that may contain one.
const SECRET: [&str; 2] = ["token", "secret"];
const ADDRESS: [&str; 2] = ["redis", "from"];

/// The maximum length of a line that is examined: more than is ever displayed.
const MAX_LENGTH: usize = 2_000;

/// A line and its marked range, in characters.
pub(super) struct ShownLine {
    pub(super) text: String,
    /// The number of characters before the marked range.
    pub(super) before: usize,
    /// The number of marked characters; 0 if they are not in this line.
    pub(super) marked: usize,
}

impl ShownLine {
    /// Creates a line in which the bytes of `at` are marked. Each secret becomes one `…`.
    pub(super) fn new(line: &str, at: Range<usize>) -> Self {
        let line = line.char_indices().nth(MAX_LENGTH).and_then(|(end, _)| line.get(..end)).unwrap_or(line);
        let hidden = secrets(line);
        let (mut text, mut before, mut marked, mut next) = (String::new(), 0, 0, 0);
        for (start, character) in line.char_indices() {
            let (end, shown) = match hidden.iter().find(|hidden| hidden.contains(&start)) {
                _ if start < next => continue,
                Some(hidden) => (hidden.end, '…'),
                None => (start + character.len_utf8(), character),
            };
            before += usize::from(end <= at.start);
            marked += usize::from(end > at.start && start < at.end);
            text.push(shown);
            next = end;
        }
        Self { text, before, marked }
    }
}

/// Removes the credentials before the `@` of an address.
pub(super) fn without_passwords(text: &str) -> String {
    let mut shown = text.to_owned();
    passwords(text).into_iter().rev().for_each(|hidden| shown.replace_range(hidden, "…"));
    shown
}

/// Returns the parts of a line that must be redacted.
fn secrets(line: &str) -> Vec<Range<usize>> {
    let mut hidden = passwords(line);
    for name in SECRET.iter().chain(&ADDRESS) {
        for (at, _) in line.match_indices(name) {
            let Some(value) = value(line, at, at + name.len()) else { continue };
            let text = &line[value.clone()];
            let is_variable = text.trim_start_matches(['"', '\'']).starts_with("${");
            if !text.is_empty() && !is_variable && (SECRET.contains(name) || text.contains(['@', '?'])) {
                hidden.retain(|other| !value.contains(&other.start));
                hidden.push(value);
            }
        }
    }
    hidden
}

/// Returns the value of the field whose name is at `start..end`: `name: value`, `name = value`, `"name": "value"`.
fn value(line: &str, start: usize, end: usize) -> Option<Range<usize>> {
    let is_word = |character: char| character.is_alphanumeric() || "_-.".contains(character);
    if line[..start].ends_with(is_word) {
        return None;
    }
    let after = line[end..].trim_start_matches(['"', '\'']).trim_start();
    let rest = after.strip_prefix([':', '='])?.trim_start();
    let start = line.len() - rest.len();
    let quote = rest.chars().next().filter(|first| ['"', '\''].contains(first));
    let characters = || rest.char_indices().skip(1);
    let length = match quote {
        // A quote inside the value is followed by more of the value.
        Some(quote) => characters()
            .map(|(at, character)| (at + character.len_utf8(), character))
            .find(|(end, character)| *character == quote && ends(&rest[*end..])),
        None if line[..start].contains('{') => characters().find(|(end, _)| ends(&rest[*end..])),
        None => None,
    };
    Some(start..start + length.map_or(rest.trim_end().len(), |(length, _)| length))
}

/// Returns `true` if only brackets, a comment or another field follows.
fn ends(rest: &str) -> bool {
    let remaining = rest.trim_start_matches(['}', ']', ' ']);
    if remaining.is_empty() || remaining.starts_with('#') && rest.len() > remaining.len() {
        return true;
    }
    let Some(other) = remaining.strip_prefix(',') else { return false };
    let name = other.trim_start().trim_start_matches(['"', '\'']);
    let length = name.find(|character: char| !character.is_ascii_alphanumeric() && character != '_').unwrap_or(0);
    length > 0 && name[length..].trim_start_matches(['"', '\'']).trim_start().starts_with([':', '='])
}

/// Returns the ranges between `://` and `@`.
fn passwords(text: &str) -> Vec<Range<usize>> {
    let mut hidden: Vec<Range<usize>> = Vec::new();
    for (at, scheme) in text.match_indices("://") {
        let start = at + scheme.len();
        let rest = &text[start..];
        let address = rest.find(|character: char| character.is_whitespace() || "\"'`".contains(character));
        let address = &rest[..address.unwrap_or(rest.len())];
        let is_new = hidden.last().is_none_or(|last| last.end <= start);
        if let Some(length) = address.rfind('@').filter(|length| *length > 0 && is_new) {
            hidden.push(start..start + length);
        }
    }
    hidden
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        ShownLine::new(line, 0..0).text
    }

    #[test]
    fn redacts_secrets() {
        for (line, expected) in [
            ("  redis: redis://:hunter2@10.0.0.7:6379", "  redis: …"),
            ("store: {redis: ':hunter2@10.0.0.7', timeout: 5}", "store: {redis: …, timeout: 5}"),
            ("store: {redis: r://:h,unter}2@a, timeout: 5ms}", "store: {redis: …, timeout: 5ms}"),
            ("store: {redis: r://u:hunter2@a}   # here", "store: {redis: …}   # here"),
            (r#"{"store": {"redis": "r://:hunter2@a", "lease": 1}}"#, r#"{"store": {"redis": …, "lease": 1}}"#),
            ("redis = 'r://:hunter2@a'", "redis = …"),
            ("  redis: 'r://:hunter2@a", "  redis: …"),
            ("from: https://a/rules?key=hunter2", "from: …"),
            ("jwt: {secret: hunter2, algorithm: RS256}", "jwt: {secret: …, algorithm: RS256}"),
            ("jwt: {secret: 'it''s hunter2', verify: 1}", "jwt: {secret: …, verify: 1}"),
            ("remote: {token: [hunter2], from: http://a}", "remote: {token: …], from: http://a}"),
            ("upstream: http://me:hunter2@a:1/b", "upstream: http://…@a:1/b"),
            ("token: hunter2 # today's", "token: …"),
        ] {
            assert_eq!(shown(line), expected);
        }
    }

    #[test]
    fn keeps_everything_else() {
        for line in [
            "store: {redis: '127.0.0.1:6379'}",
            "jwt: {secret: '${JWT_SECRET}', from: cookie(token)}",
            "by: header(x-token)",
            "tokens: 5",
            "refill: {tokens: 5, every: 1s}",
            "  secret:",
            "# the secret of from: it is @ home",
            "match: {header: {x-from: a@b}}",
        ] {
            assert_eq!(shown(line), line.replace("it is @ home", "…"), "{line}");
        }
    }

    #[test]
    fn marks_the_same_text_after_redaction() {
        let line = "jwt: {secret: hunter2, algorithm: RS256}";
        let at = |text: &str| line.find(text).map_or(0..0, |start| start..start + text.len());
        let marked = |text: &str| {
            let ShownLine { before, marked, .. } = ShownLine::new(line, at(text));
            (before, marked)
        };
        assert_eq!(marked("secret"), (6, 6));
        assert_eq!(marked("hunter2"), (14, 1));
        assert_eq!(marked("unter"), (14, 1));
        assert_eq!(marked("RS256"), (28, 5));
    }

    #[test]
    fn redacts_passwords_in_messages() {
        assert_eq!(
            without_passwords("invalid value `http://me:pw@b/c` for `a`, http://d"),
            "invalid value `http://…@b/c` for `a`, http://d"
        );
        assert_eq!(without_passwords("me@example.com"), "me@example.com");
    }
}
