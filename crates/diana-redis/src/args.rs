//! Script arguments, stored as text in one buffer.

use std::fmt::{Display, Write};

/// A list of texts in one buffer, without an allocation for each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Args {
    text: String,
    ends: Vec<usize>,
}

impl Args {
    /// Adds one argument.
    pub(crate) fn push(&mut self, argument: impl Display) {
        // Writing to a `String` does not fail.
        let _ = write!(self.text, "{argument}");
        self.ends.push(self.text.len());
    }

    /// Returns the number of arguments.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Appends all arguments of `other`.
    pub(crate) fn extend(&mut self, other: &Self) {
        let offset = self.text.len();
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| end + offset));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let argument = self.text.as_bytes().get(start..*end).unwrap_or_default();
            start = *end;
            argument
        })
    }
}
