//! What may be shown of what must not be shown.

use std::fmt;

/// A password or a token: nobody sees it by accident.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// For the one who has to send it.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What a stranger wrote, for a line of the log: no control characters, and not long.
pub(super) fn clean(text: &str) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    text.trim().chars().take(200).map(printable).collect()
}
