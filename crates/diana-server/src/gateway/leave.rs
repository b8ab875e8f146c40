//! What the rules let a request do: pass, or go elsewhere.

use super::out_body::OutBody;
use super::site::Store;
use super::upstream::UpstreamBody;
use super::visit::Visit;
use bytes::Bytes;
use diana::Verdict;
use diana_http::{Diverted, Pacing, Pass, Slowed};
use diana_rules::{HeldUntil, RuleInForce};
use http::{HeaderName, Response};
use http_body_util::Full;
use std::time::Duration;

/// What an upstream says that a request cost, which is not for clients.
pub(super) const COST: HeaderName = HeaderName::from_static("x-diana-cost");

/// What the rules let a request do.
pub(super) enum Leave {
    Pass(Pass<Store>),
    Divert(Diverted),
}

impl Leave {
    pub(super) fn verdict(&self) -> &Verdict {
        match self {
            Self::Pass(pass) => pass.verdict(),
            Self::Divert(diverted) => diverted.verdict(),
        }
    }

    /// Whether the request goes on when its client leaves: a rule holds its place until the upstream is done.
    pub(super) fn outlives_client(&self) -> bool {
        let Self::Pass(pass) = self else { return false };
        let verdict = pass.verdict();
        let holds = |rule: &RuleInForce| rule.rule().held_until == HeldUntil::UpstreamDone;
        let found = verdict.found();
        found.is_held() && found.applied().iter().any(|applied| verdict.rules().rule(applied.rule).is_some_and(holds))
    }

    /// The request is carried out from now on.
    pub(super) fn begin(&mut self) {
        if let Self::Pass(pass) = self {
            pass.begin();
        }
    }

    /// So long the request's body was waited for.
    pub(super) fn waited_for_client(&mut self, time: Duration) {
        if let Self::Pass(pass) = self {
            pass.waited_for_client(time);
        }
    }

    /// Whether the rules say how fast bodies flow.
    pub(super) fn is_slowed(&self) -> bool {
        matches!(self, Self::Pass(pass) if pass.is_slowed())
    }

    /// What comes from the client, as slow as the rules say.
    pub(super) fn request_body<B>(&self, body: B) -> Slowed<B> {
        match self {
            Self::Pass(pass) => pass.request_body(body),
            Self::Divert(_) => Pacing::default().request(body),
        }
    }

    /// What goes to the client, as slow as the rules say.
    pub(super) fn response_body<B>(&self, body: B) -> Slowed<B> {
        match self {
            Self::Pass(pass) => pass.response_body(body),
            Self::Divert(_) => Pacing::default().response(body),
        }
    }

    /// An upstream's answer, as the client gets it.
    pub(super) fn answer(self, response: Response<UpstreamBody>, visit: Visit) -> Response<OutBody> {
        match self {
            Self::Pass(pass) => pass.answer(response).map(|body| OutBody::upstream(body, visit)),
            Self::Divert(diverted) => {
                let mut response = response;
                response.headers_mut().remove(COST);
                diverted.add_fields(response.headers_mut());
                response.map(|body| OutBody::diverted(body, visit))
            }
        }
    }

    /// An answer of the gateway's own, as the client gets it.
    pub(super) fn answer_self(self, response: Response<Full<Bytes>>, visit: Visit) -> Response<OutBody> {
        match self {
            Self::Pass(pass) => pass.answer(response).map(|body| OutBody::answered(body, visit)),
            Self::Divert(diverted) => {
                let mut response = response;
                diverted.add_fields(response.headers_mut());
                response.map(|body| OutBody::own(body, visit))
            }
        }
    }
}
