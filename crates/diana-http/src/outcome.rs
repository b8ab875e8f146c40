//! What becomes of a request.

use crate::attributes::HttpAttributes;
use crate::fields;
use crate::pass::Pass;
use crate::refusal::{Manner, Refused};
use crate::settling;
use diana::Verdict;
use diana::core::{MemoryStore, Store};
use diana::rules::{Over, RateLimitHeaders, Upstream};
use http::HeaderMap;
use http::request::Parts;
use std::fmt;

/// What becomes of a request.
#[must_use = "a refused request must not go on"]
pub enum Checked<S: Store + 'static = MemoryStore> {
    /// It goes on.
    Pass(Pass<S>),
    /// It is over a limit whose rule sends such requests elsewhere.
    Divert(Diverted),
    /// It is refused.
    Refuse(Refused),
}

/// A request that goes elsewhere, since it is over a limit. Nothing was charged for it, and it holds nothing.
#[derive(Debug)]
pub struct Diverted {
    pub(crate) verdict: Verdict,
    pub(crate) headers: RateLimitHeaders,
}

impl Diverted {
    /// Where it goes.
    pub fn to(&self) -> &Upstream {
        match self.verdict.over() {
            Some(Over::Divert(to)) => to,
            _ => unreachable!("only what is diverted becomes one of these"),
        }
    }

    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// A refusal in its place, for whoever has nowhere else to send it. `head` is the request's.
    pub fn refuse(self, head: &Parts) -> Refused {
        let manner = Manner::of(&HttpAttributes::of_head(head, None));
        Refused { verdict: self.verdict, headers: self.headers, manner }
    }

    /// Tells the client where it stands, in the head of the answer. A cost that stands there goes: nothing was charged, and
    /// clients never see it.
    pub fn add_fields(&self, headers: &mut HeaderMap) {
        headers.remove(settling::COST);
        fields::add(headers, &self.verdict, self.headers);
    }
}

impl<S: Store + 'static> fmt::Debug for Checked<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(pass) => f.debug_tuple("Pass").field(pass).finish(),
            Self::Divert(diverted) => f.debug_tuple("Divert").field(diverted).finish(),
            Self::Refuse(refused) => f.debug_tuple("Refuse").field(refused).finish(),
        }
    }
}
