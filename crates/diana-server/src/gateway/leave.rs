//! What the rules let a request do: pass, or go elsewhere.

use super::request_log::RequestTracker;
use super::response_body::ResponseBody;
use super::upstream::UpstreamBody;
use super::worker_state::Store;
use bytes::Bytes;
use diana::Verdict;
use diana_http::{RequestPermit, Rerouted, Throttle, ThrottledBody};
use diana_rules::{CompiledRule, HeldUntil};
use http::{HeaderName, Response};
use http_body_util::Full;
use std::time::Duration;

/// What an upstream says that a request cost, which is not for clients.
pub(super) const COST: HeaderName = HeaderName::from_static("x-diana-cost");

/// What the rules let a request do.
pub(super) enum Leave {
    RequestPermit(RequestPermit<Store>),
    Divert(Rerouted),
}

impl Leave {
    pub(super) fn verdict(&self) -> &Verdict {
        match self {
            Self::RequestPermit(pass) => pass.verdict(),
            Self::Divert(diverted) => diverted.verdict(),
        }
    }

    /// Whether the request goes on when its client leaves: a rule holds its place until the upstream is done.
    pub(super) fn outlives_client(&self) -> bool {
        let Self::RequestPermit(pass) = self else { return false };
        let verdict = pass.verdict();
        let holds = |rule: &CompiledRule| rule.rule().held_until == HeldUntil::UpstreamDone;
        let found = verdict.found();
        found.is_held() && found.applied().iter().any(|applied| verdict.rules().rule(applied.rule).is_some_and(holds))
    }

    /// The request is carried out from now on.
    pub(super) fn begin(&mut self) {
        if let Self::RequestPermit(pass) = self {
            pass.begin();
        }
    }

    /// So long the request's body was waited for.
    pub(super) fn waited_for_client(&mut self, time: Duration) {
        if let Self::RequestPermit(pass) = self {
            pass.waited_for_client(time);
        }
    }

    /// Whether the rules say how fast bodies flow.
    pub(super) fn is_slowed(&self) -> bool {
        matches!(self, Self::RequestPermit(pass) if pass.is_slowed())
    }

    /// What comes from the client, as slow as the rules say.
    pub(super) fn request_body<B>(&self, body: B) -> ThrottledBody<B> {
        match self {
            Self::RequestPermit(pass) => pass.request_body(body),
            Self::Divert(_) => Throttle::default().request(body),
        }
    }

    /// What goes to the client, as slow as the rules say.
    pub(super) fn response_body<B>(&self, body: B) -> ThrottledBody<B> {
        match self {
            Self::RequestPermit(pass) => pass.response_body(body),
            Self::Divert(_) => Throttle::default().response(body),
        }
    }

    /// An upstream's answer, as the client gets it.
    pub(super) fn answer(self, response: Response<UpstreamBody>, tracker: RequestTracker) -> Response<ResponseBody> {
        match self {
            Self::RequestPermit(pass) => pass.answer(response).map(|body| ResponseBody::upstream(body, tracker)),
            Self::Divert(diverted) => {
                let mut response = response;
                response.headers_mut().remove(COST);
                diverted.add_fields(response.headers_mut());
                response.map(|body| ResponseBody::diverted(body, tracker))
            }
        }
    }

    /// An answer of the gateway's own, as the client gets it.
    pub(super) fn answer_self(
        self,
        response: Response<Full<Bytes>>,
        tracker: RequestTracker,
    ) -> Response<ResponseBody> {
        match self {
            Self::RequestPermit(pass) => pass.answer(response).map(|body| ResponseBody::answered(body, tracker)),
            Self::Divert(diverted) => {
                let mut response = response;
                diverted.add_fields(response.headers_mut());
                response.map(|body| ResponseBody::own(body, tracker))
            }
        }
    }
}
