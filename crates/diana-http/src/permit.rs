//! The guard of a request that passes: what it took comes back as it should, whatever becomes of it.
//!
//! # What always holds (tests/it/giving_back.rs)
//! - Dropped before [`begin`](Pass::begin), everything comes back: the request was not carried out.
//! - As long as it is there, what it holds is held, in the shared store too.
//! - Dropped later, what is held while a request runs (`concurrent`) comes back, and the rest stays taken.
//! - Nothing comes back twice.

use crate::bandwidth::{Throttle, ThrottledBody};
use crate::body::PermitBody;
use crate::cost_header;
use crate::filter::Inner;
use crate::ratelimit_headers;
use diana::core::{MemoryStore, Store};
use diana::rules::CountedIn;
use diana::{ActualCost, LeaseGuard, RequestPhase, ResponseClass, Verdict};
use futures_util::FutureExt;
use http::Response;
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A request that passes, and what it has taken and holds.
///
/// Dropping it says that the request was not carried out, and gives everything back; after [`begin`](Self::begin), that it is
/// over, and gives back what is only held while it runs.
#[must_use = "dropping it gives everything back"]
pub struct RequestPermit<S: Store + 'static = MemoryStore> {
    /// There until it is given back.
    verdict: Option<Verdict>,
    filter: Arc<Inner<S>>,
    /// What slows its bodies down.
    pacing: Throttle,
    /// How far the request is, if it ended now.
    left: RequestPhase,
    /// What the response says it cost, if that is still to be told to the shared store.
    costs: Option<Box<ActualCost>>,
    /// Keeps what it holds in the shared store for as long as it runs.
    keeping: Option<LeaseGuard>,
}

impl<S: Store + 'static> RequestPermit<S> {
    pub(crate) fn new(verdict: Verdict, filter: Arc<Inner<S>>) -> Self {
        let pacing = Throttle::of(&filter.engine, &verdict);
        let keeping = filter.engine.keep(&verdict);
        Self { verdict: Some(verdict), filter, pacing, left: RequestPhase::Unbegun, costs: None, keeping }
    }

    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        self.verdict.as_ref().unwrap_or_else(|| unreachable!("it is taken out only when this is dropped"))
    }

    /// The request's body, as fast as the rules allow.
    pub fn request_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.pacing.request(body)
    }

    /// A body of the response that comes otherwise than by [`answer`](Self::answer), such as what flows through an upgraded
    /// connection, as fast as the rules allow.
    pub fn response_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.pacing.response(body)
    }

    /// Whether the rules slow anything down.
    pub fn is_slowed(&self) -> bool {
        !self.pacing.is_none()
    }

    /// Says that for so long the request's body was waited for: an adaptive limit is not to think that the service took it.
    pub fn waited_for_client(&mut self, time: Duration) {
        if let Some(verdict) = &mut self.verdict {
            verdict.waited_for_client(time);
        }
    }

    /// Says that the request is carried out from now on, so that only what it holds comes back.
    pub fn begin(&mut self) {
        self.left = RequestPhase::Done;
        if let Some(verdict) = &mut self.verdict {
            verdict.begin();
        }
    }

    /// Finishes the response: corrects the cost by what its field `x-diana-cost` says, adds the fields that tell the client
    /// where it stands, and gives back what the request holds when the body has been sent, or is dropped.
    pub fn answer<B: Body>(mut self, response: Response<B>) -> Response<PermitBody<B, S>> {
        self.begin();
        let (mut head, body) = response.into_parts();
        if let Some(verdict) = self.verdict.as_mut().filter(|verdict| verdict.found().is_held()) {
            let is_fault = head.status.is_server_error();
            verdict.answered(if is_fault { ResponseClass::Overloaded } else { ResponseClass::Ok });
        }
        if let Some(costs) = cost_header::take(&mut head.headers) {
            self.settle(costs);
        }
        ratelimit_headers::add(&mut head.headers, self.verdict(), self.filter.options.rate_limit_headers);
        let body = self.pacing.response(body);
        let held = self.verdict().found().is_held().then_some(self);
        Response::from_parts(head, PermitBody::new(body, held))
    }

    /// Corrects the cost: at once where it is counted in this process, else when the request is over.
    #[cold]
    fn settle(&mut self, costs: ActualCost) {
        if self.is_shared() {
            // The response can't wait for the shared store, so it reports what will be left.
            if let Some(verdict) = &mut self.verdict {
                verdict.expect(&costs);
            }
            self.costs = Some(Box::new(costs));
        } else if let Some(verdict) = &mut self.verdict {
            let _ = self.filter.engine.settle(verdict, &costs).now_or_never();
        }
    }

    /// Whether something may have to be given back to the shared store.
    fn is_shared(&self) -> bool {
        let shares = self.filter.engine.shared().is_some();
        let found = self.verdict().found();
        shares && found.applied().iter().chain(found.free()).any(|applied| applied.home == CountedIn::Shared)
    }
}

impl<S: Store + 'static> Drop for RequestPermit<S> {
    fn drop(&mut self) {
        let Some(verdict) = self.verdict.take() else { return };
        self.keeping = None;
        self.filter.engine.leave(verdict, self.left, self.costs.take());
    }
}

impl<S: Store + 'static> fmt::Debug for RequestPermit<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestPermit").field("verdict", &self.verdict).field("left", &self.left).finish()
    }
}
