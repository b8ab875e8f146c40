//! One rule: the requests it matches, the keys it counts, its limits, and the handling of requests over the limit.

mod allow_deny_list;
pub(crate) mod count;
pub(crate) mod max_load;
pub(crate) mod overrides;
pub(crate) mod parse;

use crate::attributes::Attribute;
use crate::expression::Expression;
use crate::key::KeySpec;
use crate::limit::LimitRule;
use crate::logged_keys::LogLevel;
use crate::matching::Match;
use crate::response::CustomResponse;
use crate::upstream_url::Upstream;
pub use allow_deny_list::KeyList;
pub use count::{CountByStatus, OnStatus, StatusSet};
use diana_core::{Cost, MAX_PERMITS, Quota};
use diana_document::Span;
use diana_document::bytes;
pub use max_load::{Overload, Percent};
pub use overrides::Override;
pub(crate) use parse::{Defaults, status};
use std::sync::Arc;
use std::time::Duration;

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

/// The cost of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CostOf {
    /// 1, because the rule has no `cost`.
    #[default]
    Request,
    /// A fixed cost.
    Fixed(Cost),
    /// The value of an expression, with the rule's `cost_min` and `cost_default`.
    Expression(Expression),
}

/// The handling of a request that is over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverLimit {
    /// The request is denied.
    #[default]
    Deny,
    /// The request is sent to another upstream.
    Reroute(Upstream),
}

/// Until when a request holds its permit of a `concurrent` limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeldUntil {
    /// The response has been sent, or the client has disconnected.
    #[default]
    ClientLeft,
    /// The upstream has responded, even if the client has disconnected. The response is then read and dropped.
    UpstreamDone,
}

/// Whether a rule denies requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The rule denies requests.
    #[default]
    Enforced,
    /// The rule only counts, and reports the requests that it would have denied.
    Shadow,
}

/// The handling of a request whose key is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missing {
    /// The rule does not apply to the request.
    #[default]
    Skip,
    /// The request is denied.
    Deny,
    /// All such requests share one count.
    Shared,
}

/// Where the counts of a rule are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedIn {
    /// In this process.
    #[default]
    Local,
    /// In the store that all instances share.
    Shared,
}

/// The bandwidth of bodies.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bandwidth {
    /// The rate in bytes; its burst is sent at once.
    pub rate: Quota,
    /// The first bytes of each body that are sent at full speed.
    pub after: u64,
    /// The bodies to throttle.
    pub of: Bodies,
}

impl Bandwidth {
    /// The duration of a chunk at the rate: short enough to look even, long enough for a low overhead.
    pub const CHUNK: Duration = Duration::from_millis(20);

    /// Returns the bytes of a chunk, which are also the default burst: so bodies flow evenly from the first byte.
    pub fn chunk_of(rate: Quota) -> u64 {
        let bytes = u128::from(rate.permits()) * Self::CHUNK.as_nanos() / rate.period().as_nanos().max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(1, MAX_PERMITS)
    }
}

/// Which bodies are throttled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bodies {
    /// Response bodies.
    #[default]
    Response,
    /// Request bodies.
    Request,
    /// Both, counted together.
    Both,
}

impl Rule {
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
