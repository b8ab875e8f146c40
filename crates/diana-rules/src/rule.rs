//! One rule: the requests it matches, the keys it counts, its limits, and the handling of requests over the limit.

mod allow_deny_list;
mod bandwidth;
mod charges;
mod cost;
mod count;
mod max_load;
pub(crate) mod missing;
mod name_and_key;
pub(crate) mod option;
pub(crate) mod over_limit;
mod overrides;
mod parse;
mod storage;

use crate::attributes::Attribute;
use crate::expression::Expression;
use crate::key::KeySpec;
pub use crate::limit::HeldUntil;
use crate::limit::LimitRule;
use crate::log_level::LogLevel;
use crate::matching::Match;
use crate::response::CustomResponse;
pub use allow_deny_list::KeyList;
pub use bandwidth::{Bandwidth, Bodies};
pub use cost::CostOf;
pub use count::{CountByStatus, OnStatus, StatusSet};
use diana_core::Cost;
use diana_document::Span;
pub use max_load::{Overload, Percent};
pub use missing::Missing;
pub(crate) use option::Defaults;
pub(crate) use over_limit::read_status;
pub use over_limit::{Mode, OverLimit};
pub use overrides::Override;
use std::sync::Arc;
use std::time::Duration;
pub use storage::CountedIn;

/// One rule of a file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rule {
    /// The name, which also identifies the counts in stores.
    pub name: String,
    /// The key to count by.
    pub by: KeySpec,
    /// The requests that the rule matches.
    pub matches: Match,
    /// The limits; all of them apply.
    pub limits: Vec<LimitRule>,
    /// Whether the concurrency limit adapts to the latency of responses.
    pub adaptive: bool,
    /// Until when a request holds its permit of a `concurrent` limit.
    pub held_until: HeldUntil,
    /// The memory bound of its keys in bytes, within that of the store.
    pub memory: Option<usize>,
    /// The bandwidth of bodies.
    pub bandwidth: Option<Bandwidth>,
    /// The load of the machine over which requests are denied.
    pub load: Option<Overload>,
    /// The rule whose counts this rule charges, if it has no limits of its own and never denies.
    pub charges: Option<String>,
    /// The responses that are charged, or refunded; `None` if each request is charged.
    pub count: Option<CountByStatus>,
    /// The cost of a request.
    pub cost: CostOf,
    /// The cost of a request whose `cost` expression fails. Without it, such a request is denied.
    pub cost_default: Option<Cost>,
    /// The minimum cost of a request if `cost` is an expression. With 0, a request that costs 0 is not counted.
    pub cost_min: u64,
    /// The keys and addresses that are not counted.
    pub allow: KeyList,
    /// The keys and addresses that are always denied.
    pub deny: KeyList,
    /// Other limits for single keys.
    pub overrides: Vec<Override>,
    /// The maximum time that a request waits.
    pub wait: Option<Duration>,
    /// The maximum number of waiting requests.
    pub queue: Option<u64>,
    /// The handling of a request that is over the limit.
    pub over: OverLimit,
    /// Whether the rule denies requests.
    pub mode: Mode,
    /// The level at which its denials are logged: the rule's, else the file's.
    pub log: LogLevel,
    /// The status of a denied request.
    pub status: u16,
    /// The custom response body of a denied request: the rule's, else the file's.
    pub answer: Option<Arc<CustomResponse>>,
    /// The handling of a request whose key is missing.
    pub missing: Missing,
    /// The status of a request that is denied because its key is missing, if it differs from `status`.
    pub missing_status: Option<u16>,
    /// Where the counts are stored.
    pub counted_in: CountedIn,
    /// The location in the file.
    pub span: Span,
}

impl Rule {
    /// Returns a rule for all requests that has no limit, and every option at its default.
    pub(crate) fn without_options(name: String, by: KeySpec, defaults: &Defaults<'_>) -> Self {
        Self {
            name,
            by,
            matches: Match::default(),
            limits: Vec::new(),
            adaptive: false,
            held_until: HeldUntil::default(),
            memory: None,
            bandwidth: None,
            load: None,
            charges: None,
            count: None,
            cost: CostOf::default(),
            cost_default: None,
            cost_min: cost::MIN_COST,
            allow: KeyList::default(),
            deny: KeyList::default(),
            overrides: Vec::new(),
            wait: None,
            queue: None,
            over: OverLimit::default(),
            mode: Mode::default(),
            log: defaults.log,
            status: defaults.status,
            answer: defaults.answer.cloned(),
            missing: Missing::default(),
            missing_status: None,
            counted_in: CountedIn::by_default(defaults.has_shared),
            span: Span::default(),
        }
    }

    /// The attributes that the rule reads, except for those of its `match`.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let cost = match &self.cost {
            CostOf::Request | CostOf::Fixed(_) => None,
            CostOf::Expression(expression) => Some(expression.attributes()),
        };
        self.by.attributes().chain(cost.into_iter().flatten())
    }

    /// Returns `true` if the rule reads an attribute that the file's `identity` defines.
    pub fn reads_identity(&self) -> bool {
        let is_known_by_it = |attribute: &Attribute| matches!(attribute, Attribute::Named(_) | Attribute::Jwt(_));
        let when = self.matches.when.iter().flat_map(Expression::attributes);
        let has_registered = self.by.has_registered() || !self.matches.others.is_empty();
        has_registered || self.attributes().chain(when).any(is_known_by_it)
    }
}
