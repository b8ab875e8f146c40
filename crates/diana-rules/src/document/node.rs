//! A value, and where it stands in the text.

/// A value, and where it stands in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it stands.
    pub span: Span,
}

/// What a value can be, in any format.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing: `key:` without a value, or `null`.
    Null,
    /// `true` or `false`; not `yes` or `on`, which are texts.
    Bool(bool),
    /// A number, as it is written: `0700` is a good key, and a bad count.
    Number(String),
    /// A text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Values by name, in the order in which they are written.
    Map(Vec<Entry>),
}

/// A value of a map, by its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The name.
    pub key: String,
    /// Where the name stands.
    pub span: Span,
    /// The value.
    pub node: Node,
}

/// A part of the text: from one byte to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Value {
    /// What people call it, in errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// The text of a scalar, as it is written: of a text or a number.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            _ => None,
        }
    }
}
