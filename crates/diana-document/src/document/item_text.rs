//! The text of one item of a list as it is written in its document: a rule, with its own comments, without the
//! indentation of the list. Variables are not replaced in it.

use super::{Document, Format};
use crate::node::Span;

/// The maximum length of an excerpt, in bytes: a rule may list thousands of keys.
const MAX_LENGTH: usize = 32 << 10;

impl Document {
    /// Returns the text of the list item at `span`, as it is written: at most 32 KiB, with `${VARIABLES}` as they are.
    ///
    /// ```
    /// use diana_document::{Document, Value};
    ///
    /// let text = "rules:\n  - name: a # the first\n    limit: 5/s\n\n  # the second\n  - {name: b, limit: 9/s}\n";
    /// let document = Document::new("diana.yaml", text);
    /// let Value::Map(sections) = document.parse()?.value else { panic!() };
    /// let Value::List(rules) = &sections[0].node.value else { panic!() };
    /// assert_eq!(document.item_text(rules[0].span), "- name: a # the first\n  limit: 5/s");
    /// assert_eq!(document.item_text(rules[1].span), "- {name: b, limit: 9/s}");
    /// # Ok::<(), diana_document::Problems>(())
    /// ```
    pub fn item_text(&self, span: Span) -> String {
        let text = &*self.text;
        let Some(item) = text.get(span.start..) else { return String::new() };
        let line = text.get(..span.start).and_then(|before| before.rsplit('\n').next()).unwrap_or_default();
        let is_flow = item.starts_with('{');
        let lines = match self.format {
            _ if is_flow => flow(item).lines().collect(),
            Format::Yaml => block(item, line.len()),
            Format::Toml => return shortened(&table(item).join("\n")),
        };
        let prefix = if self.format == Format::Toml { ["", ""] } else { ["- ", "  "] };
        let mut written = String::new();
        for (number, line_of_item) in lines.into_iter().enumerate() {
            let indent = if number == 0 { 0 } else { line.len().min(indent(line_of_item)) };
            let content = line_of_item.get(indent..).unwrap_or_default().trim_end();
            if number > 0 {
                written.push('\n');
            }
            if !content.is_empty() {
                written.push_str(prefix[usize::from(number > 0)]);
                written.push_str(content);
            }
        }
        shortened(&written)
    }
}

/// Returns the text from `{` to its `}`.
fn flow(text: &str) -> &str {
    let (mut depth, mut quote, mut before) = (0_usize, None, ' ');
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match (quote, character) {
            (Some('"'), '\\') => {
                characters.next();
            }
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            // Within a word, a quote is an ordinary character.
            (None, '"' | '\'') if before.is_whitespace() || "{[,:=".contains(before) => quote = Some(character),
            (None, '#') if before.is_whitespace() => {
                let Some(_) = characters.by_ref().find(|(_, character)| *character == '\n') else { return text };
            }
            (None, '{') => depth += 1,
            (None, '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return text.get(..=at).unwrap_or(text);
                }
            }
            _ => {}
        }
        before = character;
    }
    text
}

/// Returns the first line, and those that are indented at least as far as its first field.
fn block(text: &str, column: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut end = 0;
    for (number, line) in text.lines().enumerate() {
        let is_field = !is_blank_or_comment(line);
        if number > 0 && is_field && indent(line) < column {
            break;
        }
        lines.push(line);
        // A comment after the last field is that of the next item, unless it is indented like the fields.
        if number == 0 || is_field || (!line.trim().is_empty() && indent(line) >= column) {
            end = lines.len();
        }
    }
    lines.truncate(end);
    lines
}

/// Returns the lines of a TOML table, with those of its subtables.
fn table(text: &str) -> Vec<&str> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let name = header.trim().trim_start_matches('[').split(']').next().unwrap_or_default().trim();
    let subtable = format!("{name}.");
    let is_own = |line: &&str| {
        let line = line.trim();
        let name = line.trim_start_matches('[').trim_start();
        !line.starts_with('[') || name.starts_with(&subtable)
    };
    let mut all = vec![header.trim_end()];
    all.extend(lines.take_while(is_own).map(str::trim_end));
    let end = all.iter().rposition(|line| !is_blank_or_comment(line)).map_or(1, |last| last + 1);
    all.truncate(end);
    all
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

fn shortened(text: &str) -> String {
    if text.len() <= MAX_LENGTH {
        return text.to_owned();
    }
    let end = (0..=MAX_LENGTH).rev().find(|&end| text.is_char_boundary(end)).unwrap_or_default();
    format!("{}\n# [...]", text.get(..end).unwrap_or_default())
}
