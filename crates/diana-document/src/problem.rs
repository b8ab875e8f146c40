//! One problem of a document: where it is, and what was expected.

use crate::node::Span;
use crate::redacted_line::without_passwords;
use std::fmt;

/// One problem, with its location.
#[derive(Clone, PartialEq, Eq)]
pub struct Problem {
    pub(crate) span: Span,
    pub(crate) what: String,
    pub(crate) expected: Option<String>,
    within: Option<Within>,
}

/// A byte offset in a text that is part of the problem's span, such as an expression in its quotes.
#[derive(Clone, PartialEq, Eq)]
struct Within {
    text: String,
    at: usize,
}

impl Problem {
    /// Creates a problem at `span`.
    pub fn new(span: Span, what: impl Into<String>) -> Self {
        Self { span, what: what.into(), expected: None, within: None }
    }

    /// Sets what was expected, or a suggested fix.
    #[must_use]
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Replaces the texts with the results of `change`. If it returns `None`, the problem's text becomes `instead`, and
    /// the expected text is removed. The location within a text is kept only if that text is unchanged.
    #[must_use]
    pub fn map_texts(self, change: impl Fn(&str) -> Option<String>, instead: &str) -> Self {
        let within = self.within.filter(|within| change(&within.text).as_ref() == Some(&within.text));
        let what = change(&self.what).unwrap_or_else(|| instead.to_owned());
        Self { what, expected: self.expected.as_deref().and_then(change), within, ..self }
    }

    /// Sets the location to byte `at` of `text`, if the document contains that text literally, and not through an
    /// alias, a variable or escapes.
    #[must_use]
    pub fn within(self, text: &str, at: usize) -> Self {
        Self { within: Some(Within { text: text.to_owned(), at }), ..self }
    }

    /// Narrows the span to the location within the text, if it can be found in the source.
    pub(crate) fn located(mut self, source: &str) -> Self {
        let Some(Within { text, at }) = self.within.take() else { return self };
        let Some(marked) = source.get(self.span.start..self.span.end) else { return self };
        // After it come only quotes and brackets; before it there may be words.
        let start = marked.rfind(&text).map(|start| self.span.start + start + at);
        let Some((start, rest)) = start.and_then(|start| Some((start, source.get(start..self.span.end)?))) else {
            return self;
        };
        // A symbol or a whole word: `.heders`, `==`.
        let is_word = |character: char| character.is_alphanumeric() || character == '_';
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let length = rest[first..].find(|character| !is_word(character)).unwrap_or(rest.len() - first);
        self.span = Span { start, end: start + first + length };
        self
    }

    /// Returns the location.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns the problem's text.
    pub fn what(&self) -> &str {
        &self.what
    }
}

impl fmt::Debug for Problem {
    /// Redacts passwords in addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { span, what, expected, within: _ } = self;
        let expected = expected.as_deref().map(without_passwords);
        f.debug_struct("Problem")
            .field("span", span)
            .field("what", &without_passwords(what))
            .field("expected", &expected)
            .finish_non_exhaustive()
    }
}
