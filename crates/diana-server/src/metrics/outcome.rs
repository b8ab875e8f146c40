//! What became of a request.

use std::fmt;

/// What became of a request, as metrics and the access log tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The upstream answered it.
    Forwarded,
    /// A rule refused it.
    Denial,
    /// A rule sent it to another upstream, which answered it.
    Rerouted,
    /// No upstream answered it: bad gateway, or too late.
    Failed,
    /// It was no good request, or too large, or not signed.
    Rejected,
    /// The gateway answered it itself.
    ResponseClass,
    /// The client went away before it was answered.
    Gone,
}

impl Outcome {
    /// How many there are.
    pub const COUNT: usize = 7;
    /// All of them, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] =
        [Self::Forwarded, Self::Denial, Self::Rerouted, Self::Failed, Self::Rejected, Self::ResponseClass, Self::Gone];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Denial => "refused",
            Self::Rerouted => "diverted",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::ResponseClass => "answered",
            Self::Gone => "gone",
        }
    }

    /// Its place among [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
