//! One rule: which requests it is about, whom it counts, how much is allowed, and what happens beyond.

mod keys;
pub(crate) mod overload;
pub(crate) mod overrides;
pub(crate) mod parse;
mod sharing;

use crate::attributes::Attribute;
use crate::bytes;
use crate::document::node::Span;
use crate::expression::Expression;
use crate::file::Upstream;
use crate::key::KeySpec;
use crate::limit::LimitRule;
use crate::matching::Match;
use crate::response::CustomResponse;
use diana_core::{Cost, Quota};
pub use keys::KeyList;
pub use overload::{Overload, Percent};
pub use overrides::Override;
pub(crate) use parse::{Defaults, status};
use std::sync::Arc;
use std::time::Duration;

/// One rule, as a file says it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// What people and stores know it by.
    pub name: String,
    /// Whom it counts.
    pub by: KeySpec,
    /// Which requests it is about.
    pub matches: Match,
    /// How much is allowed: all of these at once.
    pub limits: Vec<LimitRule>,
    /// Whether as many are let in at a time as the latency of their answers allows.
    pub adaptive: bool,
    /// Until when a request holds its place of a `concurrent` limit.
    pub held_until: HeldUntil,
    /// How fast bodies flow.
    pub bandwidth: Option<Bandwidth>,
    /// How busy the machine may be.
    pub load: Option<Overload>,
    /// What a request costs.
    pub cost: CostOf,
    /// What a request costs whose `cost` fails. Without it, such a request is denied.
    pub cost_default: Option<Cost>,
    /// The least that a request costs, where `cost` is an expression. With 0, a request that costs nothing is not counted.
    pub cost_min: u64,
    /// Who is not counted.
    pub allow: KeyList,
    /// Who is refused at once.
    pub deny: KeyList,
    /// Other limits for single keys.
    pub overrides: Vec<Override>,
    /// How long a request waits for its turn.
    pub wait: Option<Duration>,
    /// How many wait at once.
    pub queue: Option<u64>,
    /// What becomes of a request that is over the limit.
    pub over: OverLimit,
    /// Whether it refuses anybody.
    pub mode: Mode,
    /// What a refusal answers.
    pub status: u16,
    /// What a refusal says in the user's own words: the rule's, else the file's.
    pub answer: Option<Arc<CustomResponse>>,
    /// What becomes of a request that lacks what `by` asks for.
    pub missing: Missing,
    /// What such a request is answered if it is denied, where that is another status than the rule's.
    pub missing_status: Option<u16>,
    /// Where its counts are.
    pub home: CountedIn,
    /// Where it stands in the file.
    pub span: Span,
}

/// What a request costs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostOf {
    /// 1, since each is a request like any other: nobody wrote a `cost`.
    #[default]
    Request,
    /// Always so much.
    Fixed(Cost),
    /// What an expression says, within the rule's `cost_min` and `cost_default`.
    Expression(Expression),
}

/// What becomes of a request that is over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OverLimit {
    /// It is refused.
    #[default]
    Deny,
    /// It goes to another upstream.
    Divert(Upstream),
}

/// Until when a request holds its place of a `concurrent` limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldUntil {
    /// The response has been sent, or the client has left.
    #[default]
    ClientLeft,
    /// The upstream has answered, even if the client has left. Its response is then read and dropped.
    UpstreamDone,
}

/// Whether a rule refuses anybody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    #[default]
    Enforced,
    /// It counts, and tells what it would have refused.
    Shadow,
}

/// What becomes of a request that lacks what `by` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The rule is not about it.
    #[default]
    Skip,
    /// It is refused.
    Deny,
    /// All of these are counted together.
    Shared,
}

/// Where the counts of a rule are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// In this process.
    #[default]
    Local,
    /// In the store that all instances share.
    Shared,
}

/// How fast bodies flow.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bandwidth {
    /// So many bytes in a time; its burst is what may go at once.
    pub rate: Quota,
    /// So many bytes of each body go at full speed first.
    pub after: u64,
    /// Which bodies.
    pub of: Bodies,
}

/// Which bodies are slowed down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    /// Those of responses.
    #[default]
    Response,
    /// Those of requests.
    Request,
    /// Both, counted together.
    Both,
}

impl Rule {
    /// What it asks about a request, but for its `match`.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let cost = match &self.cost {
            CostOf::Request | CostOf::Fixed(_) => None,
            CostOf::Expression(expression) => Some(expression.attributes()),
        };
        self.by.attributes().chain(cost.into_iter().flatten())
    }

    /// Whether it asks for something that only the file's `identity` knows.
    pub(crate) fn asks_identity(&self) -> bool {
        let is_known_by_it = |attribute: &Attribute| matches!(attribute, Attribute::Named(_) | Attribute::Jwt(_));
        let when = self.matches.when.iter().flat_map(Expression::attributes);
        let asks_anything = self.by.asks_anything() || !self.matches.others.is_empty();
        asks_anything || self.attributes().chain(when).any(is_known_by_it)
    }
}
