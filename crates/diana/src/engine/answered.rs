//! How the answer to a request came out: what adaptive limits learn from.

use super::Verdict;

/// How the answer to a request came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    /// It is there; how long it took tells how busy the service is.
    Well,
    /// The service could not: it timed out, or answered that something is wrong with it (5xx).
    Overloaded,
}

impl Verdict {
    /// Says that the head of the answer is there, now. Adaptive limits learn from how long it took; to others it is nothing.
    pub fn answered(&mut self, how: Answered) {
        let _ = how;
    }
}
