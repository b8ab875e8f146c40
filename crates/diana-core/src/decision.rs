//! One decision over all the limits that apply to a request.

use crate::{Answer, Outcome, Retry};
use smallvec::SmallVec;
use std::time::Duration;

/// The result of a request over all its asks: granted and charged by every limit, or charged by none.
///
/// All output (headers, dashboards, explanations, replies on the wire) is derived from this value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a denied request must not proceed"]
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
    /// Creates a decision from these answers, one for each ask, in the order of the asks.
    pub fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: answers.into_iter().collect(), note: 0 }
    }

    /// Replaces the decision by that of one ask. It reuses the memory, which is cheaper than a new decision.
    #[inline]
    pub fn replace(&mut self, answer: Answer) {
        self.note = 0;
        // Most decisions have one answer, and so had the decision whose memory is reused.
        if let [only] = &mut self.answers[..] {
            *only = answer;
        } else {
            self.replace_answers(answer);
        }
    }

    #[cold]
    fn replace_answers(&mut self, answer: Answer) {
        self.answers.clear();
        self.answers.push(answer);
    }

    /// Creates a decision without answers.
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { answers: SmallVec::new(), note: 0 }
    }

    /// Removes the answers, and returns their list for a store that fills it in place: a decision is too large to copy around.
    #[inline(always)]
    pub(crate) fn start_again(&mut self) -> &mut SmallVec<[Answer; 8]> {
        self.note = 0;
        self.answers.clear();
        &mut self.answers
    }

    /// Attaches a number by which the store recognises the decision when it is refunded.
    pub fn with_note(self, note: u64) -> Self {
        Self { note, ..self }
    }

    /// Returns the number that the store attached with [`with_note`](Self::with_note); 0 if none.
    pub fn note(&self) -> u64 {
        self.note
    }

    /// Returns the answer of each limit, in the order of the asks.
    ///
    /// A denied request is not charged: a granted answer in it only means that this limit would have granted it.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// Returns `true` if the request may proceed (after [`wait`](Self::wait)).
    #[inline]
    pub fn is_granted(&self) -> bool {
        self.answers.iter().all(Answer::is_granted)
    }

    /// Returns how long a granted request must wait: the longest wait of all limits. `None` if it was denied.
    #[inline]
    pub fn wait(&self) -> Option<Duration> {
        if let [only] = &self.answers[..] {
            return only.wait();
        }
        self.answers.iter().try_fold(Duration::ZERO, |longest, answer| Some(longest.max(answer.wait()?)))
    }

    /// Returns when all limits would grant a denied request, as far as is known now. `None` if it was granted.
    pub fn retry(&self) -> Option<Retry> {
        self.answers.iter().filter_map(Answer::retry).reduce(Retry::later)
    }

    /// Returns the index of the binding ask: in a denied request the one with the latest retry, in a granted one the one with
    /// the fewest permits remaining. `None` if there were no asks.
    pub fn binding(&self) -> Option<usize> {
        let denied = self.answers.iter().enumerate().filter_map(|(index, answer)| Some((index, answer.retry()?)));
        let longest = denied.reduce(|a, b| if a.1.later(b.1) == a.1 { a } else { b }).map(|(index, _)| index);
        longest.or_else(|| {
            self.answers.iter().enumerate().min_by_key(|(_, answer)| answer.status().remaining).map(|(index, _)| index)
        })
    }

    /// Returns the outcome of one ask.
    pub fn outcome(&self, ask: usize) -> Option<Outcome> {
        self.answers.get(ask).map(|answer| answer.outcome)
    }
}
