//! The permission that the rules give a request: to be forwarded, or to be rerouted.

use super::request::RequestTracker;
use super::response::ResponseBody;
use super::upstream::UpstreamBody;
use super::worker::Store;
use bytes::Bytes;
use diana::Verdict;
use diana_http::{RequestPermit, Rerouted, Throttle, ThrottledBody};
use diana_rules::rule::HeldUntil;
use diana_rules::ruleset::CompiledRule;
use http::{HeaderName, Response};
use http_body_util::Full;
use std::time::Duration;

/// The header in which an upstream reports a request's cost. It is removed before the response reaches the client.
pub(super) const COST: HeaderName = HeaderName::from_static("x-diana-cost");

/// What the rules allow a request to do.
pub(super) enum Leave {
    Pass(RequestPermit<Store>),
    Divert(Rerouted),
}

impl Leave {
    pub(super) fn verdict(&self) -> &Verdict {
        match self {
            Self::Pass(pass) => pass.verdict(),
            Self::Divert(diverted) => diverted.verdict(),
        }
    }

    /// Returns `true` if the request continues after its client disconnects: a rule holds its permit until the upstream
    /// is done.
    pub(super) fn outlives_client(&self) -> bool {
        let Self::Pass(pass) = self else { return false };
        let verdict = pass.verdict();
        let holds = |rule: &CompiledRule| rule.rule().held_until == HeldUntil::UpstreamDone;
        let found = verdict.found();
        found.is_held() && found.applied().iter().any(|applied| verdict.rules().rule(applied.rule).is_some_and(holds))
    }

    /// Marks the request as being processed.
    pub(super) fn begin(&mut self) {
        if let Self::Pass(pass) = self {
            pass.begin();
        }
    }

    /// Records how long the gateway waited for the request's body.
    pub(super) fn waited_for_client(&mut self, time: Duration) {
        if let Self::Pass(pass) = self {
            pass.waited_for_client(time);
        }
    }

    /// Returns `true` if a rule throttles the bodies.
    pub(super) fn is_slowed(&self) -> bool {
        matches!(self, Self::Pass(pass) if pass.is_slowed())
    }

    /// Throttles the request body as the rules require.
    pub(super) fn request_body<B>(&self, body: B) -> ThrottledBody<B> {
        match self {
            Self::Pass(pass) => pass.request_body(body),
            Self::Divert(_) => Throttle::default().request(body),
        }
    }

    /// Throttles the response body as the rules require.
    pub(super) fn response_body<B>(&self, body: B) -> ThrottledBody<B> {
        match self {
            Self::Pass(pass) => pass.response_body(body),
            Self::Divert(_) => Throttle::default().response(body),
        }
    }

    /// Turns an upstream's response into the client's response.
    pub(super) fn answer(self, response: Response<UpstreamBody>, tracker: RequestTracker) -> Response<ResponseBody> {
        match self {
            Self::Pass(pass) => pass.answer(response).map(|body| ResponseBody::upstream(body, tracker)),
            Self::Divert(diverted) => {
                let mut response = response;
                response.headers_mut().remove(COST);
                diverted.add_fields(response.headers_mut());
                response.map(|body| ResponseBody::diverted(body, tracker))
            }
        }
    }

    /// Turns a local response into the client's response.
    pub(super) fn answer_self(
        self,
        response: Response<Full<Bytes>>,
        tracker: RequestTracker,
    ) -> Response<ResponseBody> {
        match self {
            Self::Pass(pass) => pass.answer(response).map(|body| ResponseBody::answered(body, tracker)),
            Self::Divert(diverted) => {
                let mut response = response;
                diverted.add_fields(response.headers_mut());
                response.map(|body| ResponseBody::own(body, tracker))
            }
        }
    }
}
