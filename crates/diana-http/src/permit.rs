//! The guard of a granted request: releases or refunds its charges in every case.
//!
//! # What always holds (tests/it/giving_back.rs)
//! - Dropping it before [`begin`](RequestPermit::begin) refunds everything: the request was not carried out.
//! - While it exists, the request's leases are extended, in the shared store too.
//! - Dropping it later releases concurrency permits (`concurrent`); the other charges stay.
//! - Nothing is released or refunded twice.

use crate::bandwidth::{Throttle, ThrottledBody};
use crate::body::PermitBody;
use crate::filter::Inner;
use crate::{cost_header, ratelimit_headers};
use diana::rules::CountedIn;
use diana::store::{MemoryStore, Store};
use diana::{ActualCost, LeaseGuard, RequestPhase, ResponseClass, Verdict};
use futures_util::FutureExt;
use http::Response;
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A granted request, with its charges and permits.
///
/// Dropping it means that the request was not carried out, and refunds everything; after [`begin`](Self::begin), that
/// the request is finished, and releases its concurrency permits.
#[must_use = "dropping it gives everything back"]
pub struct RequestPermit<S: Store + 'static = MemoryStore> {
    /// `None` once it is released.
    verdict: Option<Verdict>,
    filter: Arc<Inner<S>>,
    /// Throttles its bodies.
    pacing: Throttle,
    /// The phase of the request, if it ended now.
    left: RequestPhase,
    /// The cost in the response, if the shared store was not updated yet.
    costs: Option<Box<ActualCost>>,
    /// Extends its leases in the shared store while it runs.
    keeping: Option<LeaseGuard>,
}

impl<S: Store + 'static> RequestPermit<S> {
    pub(crate) fn new(verdict: Verdict, filter: Arc<Inner<S>>) -> Self {
        let pacing = Throttle::of(&filter.engine, &verdict);
        let keeping = filter.engine.keep(&verdict);
        Self { verdict: Some(verdict), filter, pacing, left: RequestPhase::Unbegun, costs: None, keeping }
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        self.verdict.as_ref().unwrap_or_else(|| unreachable!("it is taken out only when this is dropped"))
    }

    /// Throttles the request's body according to the rules.
    pub fn request_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.pacing.request(body)
    }

    /// Throttles a response body that does not pass through [`answer`](Self::answer), such as the data of an upgraded
    /// connection.
    pub fn response_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.pacing.response(body)
    }

    /// Returns `true` if the rules throttle a body.
    pub fn is_slowed(&self) -> bool {
        !self.pacing.is_none()
    }

    /// Records time that was spent waiting for the request's body: adaptive limits subtract it from the latency of the
    /// service.
    pub fn waited_for_client(&mut self, time: Duration) {
        if let Some(verdict) = &mut self.verdict {
            verdict.waited_for_client(time);
        }
    }

    /// Marks the request as started, so that dropping the permit only releases concurrency permits.
    pub fn begin(&mut self) {
        self.left = RequestPhase::Done;
        if let Some(verdict) = &mut self.verdict {
            verdict.begin();
        }
    }

    /// Finishes the response: corrects the cost by its header `x-diana-cost`, adds the rate limit headers, and releases
    /// the request's permits when the body was sent or is dropped.
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

    /// Corrects the cost: immediately in this process, and after the request in the shared store.
    #[cold]
    fn settle(&mut self, costs: ActualCost) {
        if self.is_shared() {
            // The response can't wait for the shared store, so it has the expected status.
            if let Some(verdict) = &mut self.verdict {
                verdict.expect(&costs);
            }
            self.costs = Some(Box::new(costs));
        } else if let Some(verdict) = &mut self.verdict {
            let _ = self.filter.engine.settle(verdict, &costs).now_or_never();
        }
    }

    /// Returns `true` if the shared store may have to be updated.
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
