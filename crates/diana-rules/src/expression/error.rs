//! Errors of compiling and of evaluating an expression.

use std::fmt;

/// The reason why a text is not a valid expression: the problem, its location, and what was expected.
///
/// ```
/// use diana_rules::expression::Expression;
///
/// let error = Expression::compile("request.heders['x'] == '1'").unwrap_err();
/// assert_eq!(error.to_string(), "unknown request field `heders`: did you mean `headers`?");
/// assert_eq!(error.at(), Some(7));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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

    /// The problem.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What was expected, or a suggested fix.
    pub fn hint(&self) -> Option<&str> {
        self.expected.as_deref()
    }

    /// The byte offset of the problem in the text, if it is known.
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

/// The reason why an expression has no result for a request. It never quotes the request, whose content the client
/// controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ExpressionFailed {
    reason: &'static str,
}

impl ExpressionFailed {
    pub(super) const fn new(reason: &'static str) -> Self {
        Self { reason }
    }
}
