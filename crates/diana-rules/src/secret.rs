//! Values that must not be displayed: passwords, tokens, and addresses that contain them.

use std::fmt;

/// A text that is formatted as `…`, so that it is not logged by accident.
///
/// ```
/// use diana_rules::Secret;
///
/// let token = Secret::new("hunter2");
/// assert_eq!(format!("{token:?}"), "…");
/// assert_eq!(token.reveal(), "hunter2");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}
