//! The result of a check.

use crate::attributes::HttpAttributes;
use crate::denial::{Denial, ResponseFormat};
use crate::permit::RequestPermit;
use crate::{cost_header, ratelimit_headers};
use diana::Verdict;
use diana::rules::{OverLimit, RateLimitHeaders, Upstream};
use diana::store::{MemoryStore, Store};
use http::HeaderMap;
use http::request::Parts;
use std::fmt;

/// The result of a check.
#[must_use = "a refused request must not go on"]
pub enum CheckResult<S: Store + 'static = MemoryStore> {
    /// Granted.
    Allow(RequestPermit<S>),
    /// Over a limit whose rule reroutes such requests.
    Reroute(Rerouted),
    /// Denied.
    Deny(Denial),
}

/// A request that is rerouted, because it is over a limit. It was not charged and holds no permits.
#[derive(Debug)]
pub struct Rerouted {
    pub(crate) verdict: Verdict,
    pub(crate) headers: RateLimitHeaders,
}

impl Rerouted {
    /// Returns the target.
    pub fn to(&self) -> &Upstream {
        match self.verdict.over() {
            Some(OverLimit::Reroute(to)) => to,
            _ => unreachable!("only what is diverted becomes one of these"),
        }
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Converts it to a denial, if there is no other upstream. `head` is the request's.
    pub fn refuse(self, head: &Parts) -> Denial {
        let manner = ResponseFormat::of(&HttpAttributes::of_head(head, None));
        Denial { verdict: self.verdict, headers: self.headers, manner }
    }

    /// Adds the rate limit headers to the response. Removes its cost header: nothing was charged, and clients must not
    /// see it.
    pub fn add_fields(&self, headers: &mut HeaderMap) {
        headers.remove(cost_header::COST);
        ratelimit_headers::add(headers, &self.verdict, self.headers);
    }
}

impl<S: Store + 'static> fmt::Debug for CheckResult<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow(pass) => f.debug_tuple("Allow").field(pass).finish(),
            Self::Reroute(diverted) => f.debug_tuple("Reroute").field(diverted).finish(),
            Self::Deny(refused) => f.debug_tuple("Deny").field(refused).finish(),
        }
    }
}
