//! What becomes of a request.

use crate::attributes::HttpAttributes;
use crate::cost_header;
use crate::denial::{Denial, ResponseFormat};
use crate::permit::RequestPermit;
use crate::ratelimit_headers;
use diana::Verdict;
use diana::core::{MemoryStore, Store};
use diana::rules::{OverLimit, RateLimitHeaders, Upstream};
use http::HeaderMap;
use http::request::Parts;
use std::fmt;

/// What becomes of a request.
#[must_use = "a refused request must not go on"]
pub enum CheckResult<S: Store + 'static = MemoryStore> {
    /// It goes on.
    RequestPermit(RequestPermit<S>),
    /// It is over a limit whose rule sends such requests elsewhere.
    Divert(Rerouted),
    /// It is refused.
    Refuse(Denial),
}

/// A request that goes elsewhere, since it is over a limit. Nothing was charged for it, and it holds nothing.
#[derive(Debug)]
pub struct Rerouted {
    pub(crate) verdict: Verdict,
    pub(crate) headers: RateLimitHeaders,
}

impl Rerouted {
    /// Where it goes.
    pub fn to(&self) -> &Upstream {
        match self.verdict.over() {
            Some(OverLimit::Divert(to)) => to,
            _ => unreachable!("only what is diverted becomes one of these"),
        }
    }

    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// A refusal in its place, for whoever has nowhere else to send it. `head` is the request's.
    pub fn refuse(self, head: &Parts) -> Denial {
        let manner = ResponseFormat::of(&HttpAttributes::of_head(head, None));
        Denial { verdict: self.verdict, headers: self.headers, manner }
    }

    /// Tells the client where it stands, in the head of the answer. A cost that stands there goes: nothing was charged, and
    /// clients never see it.
    pub fn add_fields(&self, headers: &mut HeaderMap) {
        headers.remove(cost_header::COST);
        ratelimit_headers::add(headers, &self.verdict, self.headers);
    }
}

impl<S: Store + 'static> fmt::Debug for CheckResult<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestPermit(pass) => f.debug_tuple("RequestPermit").field(pass).finish(),
            Self::Divert(diverted) => f.debug_tuple("Divert").field(diverted).finish(),
            Self::Refuse(refused) => f.debug_tuple("Refuse").field(refused).finish(),
        }
    }
}
