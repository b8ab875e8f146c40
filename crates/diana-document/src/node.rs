//! A value, and its location in the text.

/// A value, and its location in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// The location.
    pub span: Span,
}

/// A value, in any format.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value: `key:` without a value, or `null`.
    Null,
    /// `true` or `false`; not `yes` or `on`, which are texts.
    Bool(bool),
    /// A number, as it is written: `0700` is a valid key, but an invalid count.
    Number(String),
    /// A text.
    Text(String),
    /// A list of values.
    List(Vec<Node>),
    /// Values by name, in the order of the text.
    Map(Vec<MapEntry>),
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The name.
    pub key: String,
    /// The location of the name.
    pub span: Span,
    /// The value.
    pub node: Node,
}

/// A byte range of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Value {
    /// Returns the type's name, for error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// Returns the text of a string or a number, as it is written.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            _ => None,
        }
    }
}
