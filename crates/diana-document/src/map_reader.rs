//! Reads a map field by field, and reports unknown fields.

use crate::foreign_words;
use crate::node::{MapEntry, Node, Span, Value};
use crate::problem::Problem;

/// The fields of one map, which are taken out one by one. Fields that remain at the end are unknown.
///
/// ```
/// use diana_document::map_reader::MapReader;
/// use diana_document::Document;
///
/// let document = Document::new("diana.yaml", "limit: 100/s\nbrust: 5\n");
/// let tree = document.parse()?;
/// let mut problems = Vec::new();
///
/// let mut rule = MapReader::of(&tree, "rule", ["limit", "burst"], &mut problems).unwrap();
/// assert_eq!(rule.take("limit").and_then(|limit| limit.text()), Some("100/s"));
/// assert!(rule.take("burst").is_none());
/// rule.finish(&mut problems);
///
/// assert_eq!(document.problems(problems).to_string(), "\
/// diana.yaml:2:1: unknown rule field `brust`
///   2 | brust: 5
///     | ^^^^^ did you mean `burst`?
/// ");
/// # Ok::<(), diana_document::Problems>(())
/// ```
#[derive(Debug)]
pub struct MapReader<'a> {
    of: &'static str,
    known: Vec<&'static str>,
    span: Span,
    remaining: Vec<&'a MapEntry>,
}

impl<'a> MapReader<'a> {
    /// Reads the fields of `node`, which errors call `of`, and which may have the `known` fields. Reports a problem if
    /// it is not a map, and for each field without a value: a forgotten value after `limit:` must not remove the limit.
    pub fn of(
        node: &'a Node,
        of: &'static str,
        known: impl Into<Vec<&'static str>>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let known = known.into();
        match &node.value {
            Value::Map(entries) => {
                for entry in entries.iter().filter(|entry| known.contains(&&*entry.key)) {
                    empty(entry, problems);
                }
                Some(Self { of, known, span: node.span, remaining: entries.iter().collect() })
            }
            other => {
                let what = format!("invalid {of}: expected a map, found {}", other.kind());
                problems.push(
                    Problem::new(node.span, what).expected(format!("expected fields such as {}", examples(&known))),
                );
                None
            }
        }
    }

    /// Takes the value of a field, if it is present and not empty.
    pub fn take(&mut self, name: &str) -> Option<&'a Node> {
        self.take_entry(name).map(|entry| &entry.node)
    }

    /// Returns the value of a field without taking it.
    pub fn peek(&self, name: &str) -> Option<&'a Node> {
        self.remaining.iter().find(|entry| entry.key == name).map(|entry| &entry.node)
    }

    /// Takes a field, if it is present and not empty.
    pub fn take_entry(&mut self, name: &str) -> Option<&'a MapEntry> {
        debug_assert!(self.known.contains(&name), "`{name}` is not one of the known fields");
        let index = self.remaining.iter().position(|entry| entry.key == name)?;
        let entry = self.remaining.remove(index);
        (entry.node.value != Value::Null).then_some(entry)
    }

    /// Takes the value of a required field.
    pub fn require(&mut self, name: &str, problems: &mut Vec<Problem>) -> Option<&'a Node> {
        // A field without a value was already reported, and a misspelled one will be.
        let is_reported = |entry: &&MapEntry| {
            entry.key == name || !self.known.contains(&&*entry.key) && nearest(&entry.key, &self.known) == Some(name)
        };
        if !self.remaining.iter().any(is_reported) {
            problems.push(Problem::new(self.first_line(), format!("missing `{name}` in {}", self.of)));
        }
        self.take(name)
    }

    /// Reports the remaining fields as unknown.
    pub fn finish(self, problems: &mut Vec<Problem>) {
        for entry in &self.remaining {
            let what = format!("unknown {} field `{}`", self.of, entry.key);
            let meant = nearest(&entry.key, &self.known).map(|meant| format!("did you mean `{meant}`?"));
            let expected = meant
                .or_else(|| foreign_words::field(&entry.key, &self.known))
                .unwrap_or_else(|| format!("expected one of {}", all(&self.known)));
            problems.push(Problem::new(entry.span, what).expected(expected));
        }
    }

    /// Returns the location of the map.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the location of the first field's name, for problems where marking the whole map would be too much.
    fn first_line(&self) -> Span {
        self.remaining.first().map_or(Span { end: self.span.start, ..self.span }, |entry| entry.span)
    }
}

/// Reports a field without a value.
pub fn empty(entry: &MapEntry, problems: &mut Vec<Problem>) {
    if entry.node.value == Value::Null {
        let problem = Problem::new(entry.span, format!("missing value for `{}`", entry.key));
        problems.push(problem.expected("add a value, or remove it"));
    }
}

/// The longest word for which a correction is suggested.
const MAX_TYPO_LENGTH: usize = 64;

/// Returns the word of `known` that is most similar to `word`, if it is similar enough.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    if word.len() > MAX_TYPO_LENGTH {
        return None;
    }
    let distance = |other: &str| strsim::osa_distance(&word.to_lowercase(), other);
    let nearest = known.iter().map(|other| (distance(other), *other)).min()?;
    // A third of the letters may differ, and at least one.
    (nearest.0 <= (nearest.1.len() / 3).max(1)).then_some(nearest.1)
}

/// Lists known words.
pub fn all(known: &[&str]) -> String {
    known.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn examples(known: &[&str]) -> String {
    all(known.get(..3.min(known.len())).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest_word_for_a_typo() {
        let known = ["name", "limit", "burst", "algorithm"];
        assert_eq!(nearest("nmae", &known), Some("name"));
        assert_eq!(nearest("Limit", &known), Some("limit"));
        assert_eq!(nearest("algoritm", &known), Some("algorithm"));
        assert_eq!(nearest("upstream", &known), None);
        assert_eq!(nearest("", &known), None);
    }
}
