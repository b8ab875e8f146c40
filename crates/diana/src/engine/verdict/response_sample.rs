//! Response samples, from which adaptive limits learn.

use super::Verdict;
use crate::engine::asks::Scope;
use diana_core::{Sample, SampleKind};
use std::time::Duration;

/// The class of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResponseClass {
    /// The response is normal; its latency is a measure of the service's load.
    Ok,
    /// The response is a timeout or a server error (5xx).
    Overloaded,
}

impl Verdict {
    /// Records that the request starts now; adaptive limits measure its latency from here. Only the first call counts;
    /// without one, it starts right after [`wait`](Self::wait).
    pub(in crate::engine) fn begin(&mut self) {
        if self.rules().has_adaptive() && self.unusual.started_at.is_none() {
            self.unusual.started_at = self.state().map(|state| state.counts.now());
        }
    }

    /// Records time that was spent waiting for the client, such as for its body; it is subtracted from the latency.
    pub(in crate::engine) fn waited_for_client(&mut self, time: Duration) {
        if let Some(started_at) = self.unusual.started_at {
            self.unusual.started_at = Some(started_at + time);
        }
    }

    /// Records that the response head has arrived now. Adaptive limits learn from the latency since
    /// [`begin`](Self::begin); other limits ignore it. Only the first call counts.
    pub(in crate::engine) fn answered(&mut self, class: ResponseClass) {
        if self.unusual.is_answered || !self.rules().has_adaptive() {
            return;
        }
        self.unusual.is_answered = true;
        let (Some(state), Some(wait)) = (self.state(), self.wait()) else { return };
        let counts = &state.counts;
        let now = counts.now();
        let latency = now.since(self.unusual.started_at.unwrap_or(self.at() + wait));
        let kind = match class {
            ResponseClass::Ok => SampleKind::Answered,
            ResponseClass::Overloaded => SampleKind::Dropped,
        };
        for scoped in self.granted().filter(|scoped| scoped.is_local && scoped.scope != Scope::Shared) {
            for ((matched, limit), answer) in self.limits_in(scoped.scope).zip(scoped.decision.answers()) {
                if !limit.limit.properties().learns {
                    continue;
                }
                if let Some(receipt) = answer.receipt() {
                    let sample = Sample { receipt, latency, kind };
                    counts.store.observe(&limit.limit, self.matches().key(matched), now, &sample);
                }
            }
        }
    }
}
