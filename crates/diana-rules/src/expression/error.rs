//! What is wrong with an expression when it is read, and what can go wrong with one when it is asked.

use std::fmt;

/// Why a text is no expression: what is wrong, where, and what was expected.
///
/// ```
/// use diana_rules::Expression;
///
/// let error = Expression::compile("request.heders['x'] == '1'").unwrap_err();
/// assert_eq!(error.to_string(), "a request has no `heders`: did you mean `headers`?");
/// assert_eq!(error.at(), Some(7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidExpression {
    what: String,
    expected: Option<String>,
    at: Option<usize>,
}

impl InvalidExpression {
    pub(super) fn new(at: Option<usize>, what: impl Into<String>) -> Self {
        Self { what: what.into(), expected: None, at }
    }

    pub(super) fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What was expected, or what would do.
    pub fn hint(&self) -> Option<&str> {
        self.expected.as_deref()
    }

    /// The byte of the text at which it is wrong, if that is known.
    pub fn at(&self) -> Option<usize> {
        self.at
    }
}

impl fmt::Display for InvalidExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.expected.as_ref().map_or(Ok(()), |expected| write!(f, ": {expected}"))
    }
}

impl std::error::Error for InvalidExpression {}

/// Why an expression has no answer for a request. It never quotes the request, since whoever sent it chose the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressionFailed {
    reason: &'static str,
}

impl ExpressionFailed {
    pub(super) const fn new(reason: &'static str) -> Self {
        Self { reason }
    }
}

impl fmt::Display for ExpressionFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason)
    }
}

impl std::error::Error for ExpressionFailed {}
