//! Redaction of secrets and untrusted text.

use std::fmt;

/// A password or a token, which is not shown in debug output.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// Returns the secret, to send it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Cleans untrusted text for a log line: no control characters, and a bounded length.
pub(super) fn clean(text: &str) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    text.trim().chars().take(200).map(printable).collect()
}
