//! Parses TOML into the tree.

use crate::node::{MapEntry, Node, Span, Value};
use crate::problem::Problem;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Parses `text`.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().map_or_else(Span::default, |span| Span { start: span.start, end: span.end });
        Problem::new(span, error.message().to_owned())
    })?;
    let span = Span { start: 0, end: text.len() };
    Ok(Node { value: map(text, table.into_inner()), span })
}

fn map(text: &str, table: DeTable<'_>) -> Value {
    let mut entries = table
        .into_iter()
        .map(|(key, value)| MapEntry { span: span(&key), key: key.into_inner().into_owned(), node: node(text, value) })
        .collect::<Vec<_>>();
    // A TOML table is sorted by name; users expect the order of the text.
    entries.sort_by_key(|entry| entry.span.start);
    Value::Map(entries)
}

fn node(text: &str, spanned: Spanned<DeValue<'_>>) -> Node {
    let span = span(&spanned);
    let written = || text.get(span.start..span.end).unwrap_or_default().to_owned();
    let value = match spanned.into_inner() {
        DeValue::String(value) => Value::Text(value.into_owned()),
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(_) | DeValue::Float(_) => Value::Number(written()),
        // No field is a date, so it becomes a text, and the field's parser reports the expected type.
        DeValue::Datetime(_) => Value::Text(written()),
        DeValue::Array(items) => Value::List(items.into_iter().map(|item| node(text, item)).collect()),
        DeValue::Table(table) => map(text, table),
    };
    Node { value, span }
}

fn span<T>(spanned: &Spanned<T>) -> Span {
    let span = spanned.span();
    Span { start: span.start, end: span.end }
}
