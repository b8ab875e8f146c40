//! How the answer to a request came out: what adaptive limits learn from.

use super::Verdict;
use super::queries::{Queries, Scope};
use diana_core::{Adaptive, Sample, SampleKind};
use std::time::Duration;

/// How the answer to a request came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseClass {
    /// It is there; how long it took tells how busy the service is.
    Ok,
    /// The service could not: it timed out, or answered that something is wrong with it (5xx).
    Overloaded,
}

impl Verdict {
    /// Says that the request goes on, now: from here on adaptive limits count how long its answer takes. Only the first time
    /// counts; who never says it is taken to go on right after [`wait`](Self::wait).
    pub fn begin(&mut self) {
        if self.rules().has_adaptive() && self.made().begun.is_none() {
            self.made_mut().begun = self.made().held.as_ref().map(|counts| counts.now());
        }
    }

    /// Says that for so long nobody but the client could do anything, such as while it sent a body: how long an answer took
    /// is reckoned without that.
    pub fn waited_for_client(&mut self, time: Duration) {
        if let Some(begun) = &mut self.made_mut().begun {
            *begun = *begun + time;
        }
    }

    /// Says that the head of the answer is there, now. Adaptive limits learn from how long it took since the request went on
    /// ([`begin`](Self::begin)); to others it is nothing. Only the first time counts.
    pub fn answered(&mut self, how: ResponseClass) {
        if self.made().is_answered || !self.rules().has_adaptive() {
            return;
        }
        self.made_mut().is_answered = true;
        let made = self.made();
        let (Some(counts), Some(wait)) = (&made.held, self.wait()) else { return };
        let now = counts.now();
        let latency = now.since(made.begun.unwrap_or(self.at() + wait));
        let kind = match how {
            ResponseClass::Ok => SampleKind::ResponseClass,
            ResponseClass::Overloaded => SampleKind::Dropped,
        };
        let local = made.local.iter().map(|decision| (made.here, decision));
        let shadows = made.shadows.iter().filter(|shadow| shadow.here);
        let shadows = shadows.map(|shadow| (Scope::Shadow(shadow.nth), &shadow.decision));
        for (part, decision) in local.chain(shadows) {
            for ((applied, limit), answer) in Queries::places(self, part).zip(decision.answers()) {
                if limit.limit.algorithm::<Adaptive>().is_none() {
                    continue;
                }
                if let Some(receipt) = answer.receipt() {
                    let sample = Sample { receipt, latency, kind };
                    counts.store.observe(&limit.limit, self.found().key(applied), now, &sample);
                }
            }
        }
    }
}
