//! Checks a file without its environment, as in a pipeline that has no secrets.
//!
//! Each value with a `${VARIABLE}` is kept as written, and problems in such a value are not reported. Everything else
//! is checked as usual.

use super::RuleFile;
use crate::registry::Registry;
use diana_document::Document;
use diana_document::Problems;
use diana_document::{Node, Span, Value};
use std::fmt;

/// A value that was not checked, since it has variables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotChecked {
    /// The line in the file, starting at 1.
    pub line: usize,
    /// The column of its first character, starting at 1.
    pub column: usize,
    /// The names of its variables, in order.
    pub variables: Vec<String>,
}

impl fmt::Display for NotChecked {
    /// `3:10: not checked: ${REDIS_PASSWORD}`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: not checked: ", self.line, self.column)?;
        for (index, name) in self.variables.iter().enumerate() {
            let between = if index > 0 { ", " } else { "" };
            write!(f, "{between}${{{}}}", diana_document::document::shown(name, 64))?;
        }
        Ok(())
    }
}

impl RuleFile {
    /// Reads a file without the environment. Values with `${VARIABLES}` are not checked, and are returned in a list.
    ///
    /// The file can be described, but not used to serve requests: values with variables may be missing from it.
    ///
    /// ```
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "
    /// store: {redis: 'redis://:${REDIS_PASSWORD}@10.0.0.7:6379'}
    /// rules: [{name: everyone, limit: 100/s}]
    /// ");
    /// let (file, not_checked) = RuleFile::read_without_environment(&document, &Registry::default())?;
    /// assert_eq!(file.rules.len(), 1);
    /// assert_eq!(not_checked[0].to_string(), "2:16: not checked: ${REDIS_PASSWORD}");
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn read_without_environment(
        document: &Document,
        registry: &Registry,
    ) -> Result<(Self, Vec<NotChecked>), Problems> {
        let mut places = Vec::new();
        // Each variable stays as written; an unclosed one is still a problem.
        let mut tree = document.parse_with(|name| Some(format!("${{{name}}}")))?;
        find(&document.parse()?, &mut places);
        places.sort_by_key(|(span, _)| *span);
        insert_placeholders(&mut tree, &places);
        let mut problems = Vec::new();
        let file = Self::of_tree(&tree, registry, &mut problems);
        let is_of_variable = |span: Span| {
            let after = places.partition_point(|(other, _)| other.start <= span.start);
            after.checked_sub(1).and_then(|index| places.get(index)).is_some_and(|(other, _)| span.end <= other.end)
        };
        problems.retain(|problem| !is_of_variable(problem.span()));
        let file = super::finish(document, &tree, file, problems)?;
        Ok((file, not_checked(document.text(), places)))
    }
}

/// The locations of values with variables, each with the names of its variables.
type VariablePlaces = Vec<(Span, Vec<String>)>;

fn find(node: &Node, places: &mut VariablePlaces) {
    match &node.value {
        Value::Text(text) => {
            let names = names(text);
            if !names.is_empty() {
                places.push((node.span, names));
            }
        }
        Value::List(items) => items.iter().for_each(|item| find(item, places)),
        Value::Map(entries) => entries.iter().for_each(|entry| find(&entry.node, places)),
        _ => {}
    }
}

/// Returns the names in `${NAME}`; `$${` is an escape.
fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (&rest[..at], &rest[at + 2..]);
        rest = after;
        if !before.ends_with('$')
            && let Some((name, after_name)) = after.split_once('}')
        {
            names.push(name.to_owned());
            rest = after_name;
        }
    }
    names
}

/// Replaces variables in `identity` with placeholders, since rules depend on the names and tokens that it defines.
fn insert_placeholders(tree: &mut Node, places: &VariablePlaces) {
    let has_variable = |node: &Node| places.binary_search_by_key(&node.span, |(span, _)| *span).is_ok();
    let Value::Map(sections) = &mut tree.value else { return };
    let Some(identity) = sections.iter_mut().find(|section| section.key == "identity") else { return };
    let Value::Map(names) = &mut identity.node.value else { return };
    for name in names {
        if let Value::Map(token) = &mut name.node.value {
            for field in token.iter_mut().filter(|field| field.key == "public_key" && has_variable(&field.node)) {
                field.key = "verify".into();
                field.node.value = Value::Bool(false);
            }
        } else if has_variable(&name.node) {
            name.node.value = Value::Text("header(x-variable)".to_owned());
        }
    }
}

fn not_checked(text: &str, places: VariablePlaces) -> Vec<NotChecked> {
    let (mut line, mut column, mut at) = (1, 1, 0);
    let mut locate = |start: usize| {
        for character in text.get(at..start).unwrap_or_default().chars() {
            (line, column) = if character == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        at = at.max(start);
        (line, column)
    };
    let located = places.into_iter().map(|(span, variables)| {
        let (line, column) = locate(span.start);
        NotChecked { line, column, variables }
    });
    located.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(RuleFile, Vec<String>), Problems> {
        let read = RuleFile::read_without_environment(&Document::new("diana.yaml", text), &Registry::default());
        read.map(|(file, not_checked)| (file, not_checked.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn checks_everything_except_values_with_variables() {
        let text = "
identity:
  account: '${SOURCE}'
  jwt: {public_key: '${KEY}', algorithm: RS256}
store: {redis: '${REDIS_URL}'}
gateway: {upstream: ['${SCHEME}://${HOST}', 'http://b']}
rules:
  - {name: a, by: account, store: shared, limit: '${RATE}/s', burst: '${BURST}'}
  - {name: b, by: jwt(sub), limit: 5/s, allow: 'a-$${b}'}
";
        let (file, not_checked) = read(text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(file.rules.iter().map(|rule| &*rule.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            not_checked,
            [
                "3:12: not checked: ${SOURCE}",
                "4:21: not checked: ${KEY}",
                "5:16: not checked: ${REDIS_URL}",
                "6:22: not checked: ${SCHEME}, ${HOST}",
                "8:50: not checked: ${RATE}",
                "8:70: not checked: ${BURST}",
            ]
        );
        let invalid = "rules: [{name: a, limit: '${RATE}/s', brust: 5}, {name: b, limit: '${X', by: acount}]";
        assert!(read(invalid).is_err_and(|problems| problems.to_string().contains("unclosed `${`")));
        let problems = read(&invalid.replace("'${X'", "'${X}/s'")).err().map(|problems| problems.to_string());
        let problems = problems.unwrap_or_default();
        assert!(problems.contains("`brust`") && problems.contains("`acount`"), "{problems}");
        assert_eq!(problems.matches("diana.yaml:").count(), 2, "{problems}");
    }
}
