//! Documents as trees: comparing them, and changing one field.

use diana_rules::document::{MapEntry, Node, Span, Value};

/// Returns an empty list of rules.
pub(super) fn no_rules() -> Node {
    Node { value: Value::List(Vec::new()), span: Span::default() }
}

/// Returns the entries of a map; none if the map is missing, and `None` if it is no map.
pub(super) fn entries(node: Option<&Node>) -> Option<&[MapEntry]> {
    match node.map(|node| &node.value) {
        None | Some(Value::Null) => Some(&[]),
        Some(Value::Map(entries)) => Some(entries),
        _ => None,
    }
}

/// Returns the value of a field of a map.
pub(super) fn get<'a>(map: &'a Node, key: &str) -> Option<&'a Node> {
    entries(Some(map))?.iter().find(|entry| entry.key == key).map(|entry| &entry.node)
}

/// Returns whether two values are the same, wherever they are in their documents, and in any order of fields.
pub(super) fn is_same(one: Option<&Node>, other: Option<&Node>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    match (&one.value, &other.value) {
        (Value::List(items), Value::List(others)) => {
            let mut pairs = items.iter().zip(others);
            items.len() == others.len() && pairs.all(|(one, other)| is_same(Some(one), Some(other)))
        }
        (Value::Map(entries), Value::Map(others)) => {
            let mut fields = entries.iter();
            entries.len() == others.len() && fields.all(|entry| is_same(Some(&entry.node), get(other, &entry.key)))
        }
        (one, other) => one == other,
    }
}

/// Returns a copy of a document with one field changed, added or removed.
pub(super) fn with(document: &Node, path: &[&str], value: Option<&Node>) -> Node {
    let mut changed = document.clone();
    set(&mut changed, path, value);
    changed
}

fn set(map: &mut Node, path: &[&str], value: Option<&Node>) {
    let Some((key, rest)) = path.split_first() else { return };
    if !matches!(map.value, Value::Map(_)) {
        map.value = Value::Map(Vec::new());
    }
    let Value::Map(entries) = &mut map.value else { return };
    if rest.is_empty() {
        entries.retain(|entry| entry.key != *key);
        entries.extend(value.map(|node| entry(key, node.clone())));
    } else if let Some(entry) = entries.iter_mut().find(|entry| entry.key == *key) {
        set(&mut entry.node, rest, value);
    } else if value.is_some() {
        let mut inner = entry(key, Node { value: Value::Map(Vec::new()), span: Span::default() });
        set(&mut inner.node, rest, value);
        entries.push(inner);
    }
}

fn entry(key: &str, node: Node) -> MapEntry {
    MapEntry { key: key.to_owned(), span: Span::default(), node }
}
