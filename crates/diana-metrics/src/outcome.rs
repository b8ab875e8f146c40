//! The outcome of a request.

use std::fmt;

/// The outcome of a request, as metrics and the access log report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The upstream responded.
    Forwarded,
    /// A rule denied it.
    Denied,
    /// A rule sent it to another upstream, which responded.
    Rerouted,
    /// No upstream responded: bad gateway, or gateway timeout.
    Failed,
    /// The request was malformed, too large, or not signed.
    Rejected,
    /// The gateway responded itself.
    Answered,
    /// The client disconnected before the response.
    Disconnected,
}

impl Outcome {
    /// The number of outcomes.
    pub const COUNT: usize = 7;
    /// All outcomes, in the order of [`index`](Self::index).
    pub const ALL: [Self; Self::COUNT] = [
        Self::Forwarded,
        Self::Denied,
        Self::Rerouted,
        Self::Failed,
        Self::Rejected,
        Self::Answered,
        Self::Disconnected,
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Denied => "denied",
            Self::Rerouted => "rerouted",
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Answered => "answered",
            Self::Disconnected => "disconnected",
        }
    }

    /// Returns its index in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
