//! What becomes of a request.

use crate::fields;
use crate::options::RateLimitHeaders;
use crate::pass::Pass;
use crate::refusal::Refused;
use diana::Verdict;
use diana::core::{MemoryStore, Store};
use diana::rules::Over;
use http::HeaderMap;
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
    pub fn to(&self) -> &str {
        match self.verdict.over() {
            Some(Over::Divert(to)) => to,
            _ => "",
        }
    }

    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Tells the client where it stands.
    pub fn add_fields(&self, headers: &mut HeaderMap) {
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
