//! The level at which denials are logged.

use diana_document::{Node, Problem, scalar};

/// The values of `log`.
pub(crate) const LOG: [&str; 4] = ["off", "info", "warn", "error"];

/// The level at which the denials of a rule are logged. Delays are logged one level lower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogLevel {
    /// They are not logged.
    Off,
    /// As information, the default; delays only for debugging.
    #[default]
    Info,
    /// As warnings; delays as information.
    Warn,
    /// As errors; delays as warnings.
    Error,
}

impl LogLevel {
    pub(crate) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let word = scalar::word(node, "`log`", &LOG, problems)?;
        Some([Self::Off, Self::Info, Self::Warn, Self::Error][word])
    }
}
