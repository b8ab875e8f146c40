//! One decision over all the limits that a request touches.

use crate::{Answer, Outcome, Retry};
use smallvec::SmallVec;
use std::time::Duration;

/// What becomes of a request, over all its asks: granted by every limit, or charged to none.
///
/// Everything that is shown to anyone (headers, dashboards, explanations, replies on the wire) is made from this value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not go on"]
pub struct Decision {
    answers: SmallVec<[Answer; 8]>,
    note: u64,
}

impl From<SmallVec<[Answer; 8]>> for Decision {
    fn from(answers: SmallVec<[Answer; 8]>) -> Self {
        Self { answers, note: 0 }
    }
}

impl Decision {
    /// The decision that consists of these answers, one for each ask, in the order of the asks.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: answers.into_iter().collect(), note: 0 }
    }

    /// The same decision with a number that its store knows it by again when it is refunded.
    pub fn with_note(self, note: u64) -> Self {
        Self { note, ..self }
    }

    /// What the store noted with [`with_note`](Self::with_note); 0 if nothing.
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Each limit's answer, in the order of the asks.
    ///
    /// In a denied request nothing was charged: there, a limit that answers "granted" only says that it would not have
    /// stood in the way.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Whether the request may go on (after [`wait`](Self::wait)).
    pub fn is_granted(&self) -> bool {
        self.answers.iter().all(Answer::is_granted)
    }

    /// How long a granted request must wait: as long as the slowest limit says. `None` if it was denied.
    pub fn wait(&self) -> Option<Duration> {
        self.answers.iter().try_fold(Duration::ZERO, |longest, answer| Some(longest.max(answer.wait()?)))
    }

    /// When a denied request would be granted by all limits, as far as they can tell now. `None` if it was granted.
    pub fn retry(&self) -> Option<Retry> {
        self.answers.iter().filter_map(Answer::retry).reduce(Retry::later)
    }

    /// Which ask bound: of a denied request the one that stands in the way longest, of a granted one the one with the
    /// least left. `None` if nothing was asked.
    pub fn binding(&self) -> Option<usize> {
        let denied = self.answers.iter().enumerate().filter_map(|(index, answer)| Some((index, answer.retry()?)));
        let longest = denied.reduce(|a, b| if a.1.later(b.1) == a.1 { a } else { b }).map(|(index, _)| index);
        longest.or_else(|| {
            self.answers.iter().enumerate().min_by_key(|(_, answer)| answer.status.remaining).map(|(index, _)| index)
        })
    }

    /// The outcome of one ask.
    pub fn outcome(&self, ask: usize) -> Option<Outcome> {
        self.answers.get(ask).map(|answer| answer.outcome)
    }
}
