//! The permit of a request.
//!
//! # What always holds (tests/it/refund.rs)
//! - Dropping it before [`begin`](RequestPermit::begin) refunds everything: the request was not carried out.
//! - While it exists, the request's leases are extended, in the shared store too.
//! - Dropping it later releases concurrency permits (`concurrent`); the other charges stay.
//! - Nothing is released or refunded twice.

use crate::cost_header;
use crate::permit_body::PermitBody;
use crate::ratelimit_headers;
use crate::throttle::{Throttle, ThrottledBody};
use diana::rules::http_settings::RateLimitHeaders;
use diana::rules::rule::OverLimit;
use diana::rules::upstream_url::Upstream;
use diana::ruleset::Needs;
use diana::{ActualCost, Engine, Permit, ResponseClass, Verdict};
use http::Response;
use http_body::Body;
use std::time::Duration;

/// A request that may go on, with its charges and permits.
///
/// Dropping it means that the request was not carried out, and refunds everything; after [`begin`](Self::begin), that
/// the request is finished, and releases its concurrency permits. The permit of a rerouted request has no charges.
#[derive(Debug)]
#[must_use = "dropping it refunds the request"]
pub struct RequestPermit {
    /// The denial of a rerouted request, which has no charges.
    decided: Result<Permit, diana::Denial>,
    headers: RateLimitHeaders,
    throttle: Throttle,
}

impl RequestPermit {
    pub(crate) fn new(permit: Permit, engine: &Engine, headers: RateLimitHeaders) -> Self {
        let throttle = Throttle::of(engine, &permit);
        Self { decided: Ok(permit.provisional()), headers, throttle }
    }

    /// Returns the permit of a request that is over a limit, and rerouted: it is not throttled either.
    pub(crate) fn rerouted(denial: diana::Denial, headers: RateLimitHeaders) -> Self {
        Self { decided: Err(denial), headers, throttle: Throttle::default() }
    }

    /// Returns the verdict.
    #[inline]
    pub fn verdict(&self) -> &Verdict {
        Verdict::of(&self.decided)
    }

    /// Returns the upstream of a rerouted request; `None` if the request is granted.
    pub fn reroute_to(&self) -> Option<&Upstream> {
        match self.verdict().over_limit() {
            Some(OverLimit::Reroute(to)) => Some(to),
            _ => None,
        }
    }

    /// Throttles the request's body according to the rules.
    pub fn request_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.throttle.request(body)
    }

    /// Throttles a response body that does not pass through [`finish`](Self::finish), such as the data of an upgraded
    /// connection.
    pub fn response_body<B>(&self, body: B) -> ThrottledBody<B> {
        self.throttle.response(body)
    }

    /// Returns `true` if the rules throttle a body.
    pub fn is_throttled(&self) -> bool {
        !self.throttle.is_none()
    }

    /// Records time that was spent waiting for the request's body: adaptive limits subtract it from the latency of the
    /// service.
    pub fn waited_for_client(&mut self, time: Duration) {
        if let Ok(permit) = &mut self.decided {
            permit.waited_for_client(time);
        }
    }

    /// Marks the request as started, so that dropping the permit only releases concurrency permits.
    #[inline]
    pub fn begin(&mut self) {
        if let Ok(permit) = &mut self.decided {
            permit.begin();
        }
    }

    /// Finishes the response: corrects the cost by its header `x-diana-cost`, charges or refunds the rules that count by
    /// its status (`count`), adds the rate limit headers, and releases the request's permits when the body was sent or is
    /// dropped.
    pub fn finish<B: Body>(self, response: Response<B>) -> Response<PermitBody<B>> {
        let status = Some(response.status().as_u16());
        self.finish_with(response, status)
    }

    /// Finishes a response that is not the outcome of the request, such as the answer to another proxy that asks whether
    /// it may forward the request: like [`finish`](Self::finish), but its status counts for no rule.
    pub fn finish_check<B: Body>(self, response: Response<B>) -> Response<PermitBody<B>> {
        self.finish_with(response, None)
    }

    fn finish_with<B: Body>(mut self, response: Response<B>, status: Option<u16>) -> Response<PermitBody<B>> {
        self.begin();
        let (mut head, body) = response.into_parts();
        // Clients must not see the header, whether something was charged or not.
        let cost = cost_header::take(&mut head.headers);
        let held = match self.decided {
            Ok(mut permit) => {
                let is_held = permit.matches().is_held();
                if is_held {
                    let is_fault = head.status.is_server_error();
                    permit.answered(if is_fault { ResponseClass::Overloaded } else { ResponseClass::Ok });
                }
                let status = status.filter(|_| permit.matches().needs().has(Needs::STATUS));
                if cost.is_some() || status.is_some() {
                    permit.settle(status.into_iter().fold(cost.unwrap_or_default(), ActualCost::status));
                }
                ratelimit_headers::add(&mut head.headers, &permit, self.headers);
                is_held.then_some(permit)
            }
            Err(denial) => {
                ratelimit_headers::add(&mut head.headers, &denial, self.headers);
                None
            }
        };
        let body = self.throttle.response(body);
        Response::from_parts(head, PermitBody::new(body, held))
    }
}
