//! A rule compiled to the limits that stores use.

use super::Purpose;
use super::matches::{ChargedAt, ChargedRule, DenyReason, KeyRange, MatchedRule, Matches};
use super::outcome_counts::{Counters, RequestOutcome, RuleCounts, WaitingRequest};
use super::plan::Needs;
use super::previous_limits;
use super::top_keys::{DeniedMinute, KeyOutcome, KeyRecorder, TopKeys, Window};
use diana_core::{Adaptive, Cost, Limit, Limiter, MaxWait, MemoryBound, Quota, Timestamp, TokenBucket, WaitMode};
use diana_rules::attributes::Attributes;
use diana_rules::key::{KeyBytes, KeyExpressions, SimpleKey};
use diana_rules::limit::LimitRule;
use diana_rules::logged_keys::LogLevel;
use diana_rules::matching::{RequestView, WithParameters};
use diana_rules::rule::{CostOf, CountedIn, Missing, Mode, Rule};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A rule, its limits for stores, and its counters.
#[derive(Debug)]
pub struct CompiledRule {
    rule: Rule,
    /// The rule's own limits, followed by those of each override.
    limits: Vec<Box<[CompiledLimit]>>,
    overrides: HashMap<KeyBytes, u32>,
    /// The limit on the bytes of bodies.
    bandwidth: Option<Limit>,
    /// The memory bound that all of these share.
    memory: Option<MemoryBound>,
    /// Whether the rule needs its own view of a request, for the parameters of the path.
    needs_view: bool,
    /// The key and the cost of a request, if they are all that must be known: see [`apply_simple`](Self::apply_simple).
    simple: Option<(SimpleKey, Cost)>,
    /// The number of the first rule with the same key.
    same_key: u32,
    /// The needs of a request that it matches, for each of `limits`.
    needs: Vec<Needs>,
    /// Where the counts are stored: in this process, if all limits are local.
    counted_in: CountedIn,
    /// The index of the rule that it charges.
    charges: Option<u32>,
    /// Shared with the rule that replaces this one, so that requests in flight are counted as well.
    counters: Arc<Counters>,
    /// The keys of its requests, if they are recorded. Shared likewise.
    keys: Option<Arc<KeyRecorder>>,
    /// Whether the keys of allowed requests are recorded, too.
    records_allowed: bool,
    /// Limits the warnings of requests whose client is unknown.
    unknown_client_log: Limiter,
}

/// A key that has another limit than before.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The old limit.
    pub from: &'a Limit,
    /// The new limit.
    pub to: &'a Limit,
}

/// A limit, and how requests use it.
#[derive(Debug)]
pub struct CompiledLimit {
    /// The limit as stores use it.
    pub limit: Limit,
    /// The maximum time that a request waits for it.
    pub max_wait: MaxWait,
    /// Whether its permits must be released when the request finishes.
    pub is_returned: bool,
    /// The maximum length of the wait queue of one key, if waiting requests are queued: for algorithms that can't
    /// compute the time of a permit in advance.
    pub queue: Option<usize>,
    /// The maximum number of reservations of one key, for algorithms that reserve a future permit, if the rule has a
    /// `queue` that `max_wait` can't express.
    pub reserved: Option<usize>,
    /// Where it is counted: as its rule, except for limits that are always local.
    pub counted_in: CountedIn,
}

/// How often a rule warns of requests whose client is unknown.
const UNKNOWN_CLIENT_LOG: Quota = Quota::checked(1, Duration::from_secs(60), 1);

/// The default maximum length of the wait queue of one key.
const MAX_QUEUE: usize = 1_000;

impl CompiledLimit {
    fn new(limit_rule: &LimitRule, rule: &Rule, name: &str, known: Option<(&Self, &LimitRule)>) -> Self {
        let limit = match known {
            Some((known, before)) if before.configured == limit_rule.configured => known.limit.clone(),
            Some((known, _)) => known.limit.changed_to(limit_rule.configured.clone()),
            None => Limit::new(name, limit_rule.configured.clone()),
        };
        // A limit that delays requests has a queue of its own, so the wait needs no other bound.
        let properties = limit_rule.configured.properties();
        let max_wait = match rule.wait {
            Some(wait) => MaxWait::up_to(wait.min(limit_rule.max_queue_wait(rule.queue))),
            None if properties.delays => MaxWait::FOREVER,
            None => MaxWait::NONE,
        };
        let is_returned = properties.is_released();
        let queue = queue_length(rule, &limit);
        let is_bounded = properties.delays || limit_rule.max_queue_wait(rule.queue) < Duration::MAX;
        let reserves = rule.wait.is_some() && limit.wait_mode() == WaitMode::Reserve && !is_bounded;
        let reserved = rule.queue.filter(|_| reserves).map(|queue| usize::try_from(queue).unwrap_or(usize::MAX));
        Self { limit, max_wait, is_returned, queue, reserved, counted_in: rule.counted_in }
    }

    /// Creates the adaptive concurrency limit, which is always local.
    fn adaptive(rule: &Rule, name: &str, known: Option<&Self>) -> Self {
        let limit = known.map_or_else(|| Limit::new(name, Adaptive::default()), |known| known.limit.clone());
        let (max_wait, queue) = (rule.wait.map_or(MaxWait::NONE, MaxWait::up_to), queue_length(rule, &limit));
        Self { limit, max_wait, is_returned: true, queue, reserved: None, counted_in: CountedIn::Local }
    }
}

/// Returns the maximum length of the wait queue of one key, if waiting requests are queued.
fn queue_length(rule: &Rule, limit: &Limit) -> Option<usize> {
    let queues = rule.wait.is_some() && limit.wait_mode() == WaitMode::Queue;
    let max = rule.queue.map_or(MAX_QUEUE, |queue| usize::try_from(queue).unwrap_or(usize::MAX));
    queues.then_some(max)
}

impl CompiledRule {
    pub(super) fn new(rule: Rule, records_keys: RecordsKeys, known: Option<&Self>) -> Self {
        // A rule with another key or store starts with new counts.
        let known = known.filter(|known| known.rule.by == rule.by && known.rule.counted_in == rule.counted_in);
        let known_limits = known.map(|known| (&*known.limits[0], &*known.rule.limits));
        let mut rule_limits = compile_limits(&rule, &rule.limits, &rule.name, known_limits);
        if rule.adaptive {
            let known = known.filter(|known| known.rule.adaptive).and_then(|known| known.limits[0].last());
            rule_limits.push(CompiledLimit::adaptive(&rule, &name_of(&rule.name, rule_limits.len()), known));
        }
        let mut limits = vec![rule_limits.into_boxed_slice()];
        let mut overrides = HashMap::new();
        for (index, key_override) in rule.overrides.iter().enumerate() {
            let name = format!("{}@{}", rule.name, key_override.written);
            let before = known.and_then(|known| {
                let index = *known.overrides.get(&key_override.key)? as usize;
                Some((&**known.limits.get(index)?, &*known.rule.overrides.get(index - 1)?.limits))
            });
            overrides.insert(key_override.key.clone(), u32::try_from(index + 1).unwrap_or(0));
            limits.push(compile_limits(&rule, &key_override.limits, &name, before).into_boxed_slice());
        }
        let counters = known.map_or_else(Arc::default, |known| Arc::clone(&known.counters));
        let is_recordable = !rule.by.is_each_request();
        let records_allowed = records_keys == RecordsKeys::Always && is_recordable;
        let records_keys = records_allowed || rule.log != LogLevel::Off && is_recordable;
        let keys = || known.and_then(|known| known.keys.clone()).unwrap_or_default();
        let keys = records_keys.then(keys);
        let needs_view = rule.by.has_registered() || rule.attributes().any(WithParameters::is_about);
        let simple = simple(&rule);
        let is_local = limits.iter().flatten().all(|limit| limit.counted_in == CountedIn::Local);
        let counted_in = if is_local { CountedIn::Local } else { rule.counted_in };
        let needs = limits.iter().map(|limits| needs(&rule, counted_in, limits)).collect();
        let memory = memory(&rule, known);
        let mut bandwidth = bandwidth(&rule, known);
        let bounded = limits.iter_mut().flatten().map(|limit| &mut limit.limit);
        bounded.chain(&mut bandwidth).for_each(|limit| *limit = limit.with_memory(memory.as_ref()));
        Self {
            rule,
            limits,
            overrides,
            bandwidth,
            memory,
            needs_view,
            simple,
            same_key: 0,
            needs,
            counted_in,
            charges: None,
            counters,
            keys,
            records_allowed,
            unknown_client_log: Limiter::new(UNKNOWN_CLIENT_LOG),
        }
    }

    /// Sets the index of the rule that it charges.
    pub(super) fn set_charges(&mut self, rule: Option<u32>) {
        self.charges = rule;
    }

    /// Sets the number of the first rule with the same key.
    pub(super) fn set_same_key(&mut self, rule: u32) {
        self.same_key = rule;
    }

    /// Returns where its counts are stored: in this process, if all its limits are local.
    pub fn counted_in(&self) -> CountedIn {
        self.counted_in
    }

    /// Returns the rule as in the file.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Returns the limits that apply to a matched key.
    pub fn limits(&self, applied: &MatchedRule) -> &[CompiledLimit] {
        self.limits_at(applied.limits)
    }

    /// Returns the rule's own limits (0), or those of an override.
    pub(super) fn limits_at(&self, index: u32) -> &[CompiledLimit] {
        self.limits.get(index as usize).map_or(&[], |limits| limits)
    }

    /// Returns the limit on the bytes of bodies, with one bucket per key. Bodies are charged chunk by chunk.
    pub fn bandwidth(&self) -> Option<&Limit> {
        self.bandwidth.as_ref()
    }

    /// Returns the keys whose limits change once `after` is active, because an override was added or removed.
    pub(super) fn moves_to<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = Move<'a>> {
        let all = self.overrides.keys().chain(after.overrides.keys().filter(|key| !self.overrides.contains_key(*key)));
        let moved = all.filter(|key| self.overrides.contains_key(*key) != after.overrides.contains_key(*key));
        moved.flat_map(|key| {
            let (from, to) = (self.limits_of(key) as usize, after.limits_of(key) as usize);
            let limits = self.limits.get(from).into_iter().zip(after.limits.get(to));
            let each = limits.flat_map(|(from, to)| from.iter().zip(to.iter()));
            // Permits in use are released to the limit that granted them.
            let each = each.filter(|(from, to)| !from.is_returned && !to.is_returned);
            each.map(move |(from, to)| Move { key, from: &from.limit, to: &to.limit })
        })
    }

    /// Returns the index of a key's limits: those of its override, or the rule's own.
    pub(super) fn limits_of(&self, key: &[u8]) -> u32 {
        if self.overrides.is_empty() { 0 } else { self.overrides.get(key).copied().unwrap_or(0) }
    }

    /// Returns `true` if a key has limits of its own (`overrides`).
    pub fn has_override(&self, key: &[u8]) -> bool {
        self.overrides.contains_key(key)
    }

    /// Returns `true` if requests can be queued for one of its limits.
    pub(super) fn has_queues(&self) -> bool {
        self.limits.iter().flatten().any(|limit| limit.queue.is_some())
    }

    /// Returns `true` if it bounds the number of reservations.
    pub(super) fn has_reserved(&self) -> bool {
        self.limits.iter().flatten().any(|limit| limit.reserved.is_some())
    }

    /// Returns the rule's own limits, without those of its overrides.
    pub fn own_limits(&self) -> &[CompiledLimit] {
        self.limits_at(0)
    }

    /// Returns all its limits: its own, those of its overrides, and that on the bytes of bodies.
    pub fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        let counted = self.limits.iter().flat_map(|limits| limits.iter().map(|limit| &limit.limit));
        counted.chain(&self.bandwidth)
    }

    /// Returns the limits that are counted in this process.
    pub(super) fn local_limits(&self) -> impl Iterator<Item = &Limit> {
        let counted = self.limits.iter().flat_map(|limits| limits.iter());
        counted.filter(|limit| limit.counted_in == CountedIn::Local).map(|limit| &limit.limit)
    }

    /// Returns the counters of the matched requests.
    pub fn counted(&self) -> RuleCounts {
        self.counters.read()
    }

    /// Counts the outcome of a request.
    #[inline]
    pub fn count(&self, outcome: RequestOutcome) {
        self.counters.count(outcome);
    }

    /// Counts a request as waiting for this rule, until the result is dropped.
    pub fn waiting(&self) -> WaitingRequest {
        WaitingRequest::new(&self.counters)
    }

    /// Counts a request that has waited for this rule, and how long.
    pub fn count_wait(&self, time: Duration) {
        self.counters.count_wait(time);
    }

    /// Records the key of a request that stands for `weight` requests. Returns `true` if its outcome is to be logged.
    #[inline]
    pub fn record(&self, outcome: KeyOutcome, key: &[u8], weight: u64, now: Timestamp) -> bool {
        let Some(keys) = self.keys.as_ref().filter(|_| outcome != KeyOutcome::Allowed || self.records_allowed) else {
            return false;
        };
        keys.record(outcome, key, weight, now) && self.rule.log != LogLevel::Off
    }

    /// Returns its heaviest keys.
    pub fn top_keys(&self, outcome: KeyOutcome, window: Window, limit: usize, now: Timestamp) -> TopKeys {
        self.keys.as_ref().map_or_else(TopKeys::default, |keys| keys.top(outcome, window, limit, now))
    }

    /// Returns the denials of the last minute that is over, if not all of them were to be logged at once; each minute
    /// once. Call it every few seconds: it also frees memory.
    pub fn denied_minute(&self, now: Timestamp) -> Option<DeniedMinute> {
        self.keys.as_ref()?.finish_minute(now).filter(|_| self.rule.log != LogLevel::Off)
    }

    /// Returns how many of its expressions have failed. A failed `when` matches, a failed cost is `cost_default` or
    /// denies the request, and requests with a failed key share one count.
    pub fn failures(&self) -> u64 {
        self.counted().failures
    }

    pub(super) fn count_failure(&self) {
        self.counters.count_failure();
    }

    /// Returns the number of requests that a shadow rule would have denied.
    pub fn shadow_denials(&self) -> u64 {
        self.counted().shadow_denied
    }

    /// Returns `true` if a request is in the rule's `allow` by all forms of its path.
    pub(super) fn allows(&self, view: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let Rule { allow, by, matches, .. } = &self.rule;
        let contains = |form| allow.contains(by, view, &matches.view_of(view, form));
        !allow.is_empty() && allow.contains(by, view, request) && view.other_paths().all(contains)
    }

    /// Returns `true` if a request is in the rule's `deny` by any form of its path.
    fn denies(&self, view: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let Rule { deny, by, matches, .. } = &self.rule;
        let contains = |form| deny.may_contain(by, view, &matches.view_of(view, form));
        !deny.is_empty() && (deny.may_contain(by, view, request) || view.other_paths().any(contains))
    }

    /// Adds the rule with the key and cost of one request whose host and path match, if nothing else must be checked and the
    /// request has the key. Else it returns `false`, and has done nothing.
    ///
    /// It has the same result as [`Match::check`](diana_rules::matching::Match::check) and [`apply`](Self::apply), which most rules
    /// do not need.
    #[inline]
    pub(super) fn apply_simple(&self, number: u32, request: &dyn Attributes, matches: &mut Matches) -> bool {
        let Some((key, cost)) = &self.simple else { return false };
        let key = match matches.last_key {
            // Rules with the same `by` often follow each other.
            Some((same, range)) if same == self.same_key => range,
            _ => {
                let start = matches.keys.len();
                if !key.write(request, &mut matches.keys) {
                    return false;
                }
                let range = KeyRange::new(start, matches.keys.len());
                matches.last_key = Some((self.same_key, range));
                range
            }
        };
        let (mode, counted_in) = (self.rule.mode, self.counted_in);
        let charged_at = ChargedAt::Request;
        let matched = MatchedRule { rule: number, limits: 0, cost: *cost, key, mode, counted_in, charged_at };
        // A simple rule has no overrides.
        matches.add_first(matched, self.needs_of(0));
        true
    }

    /// Adds the rule with the key and cost of a matching request or call.
    pub(super) fn apply(
        &self,
        number: u32,
        view: &RequestView<'_>,
        subject: Subject,
        hits: Hits,
        matches: &mut Matches,
    ) -> Expressions {
        let rule = &self.rule;
        let rule_view = rule.matches.view(view);
        let request: &dyn Attributes = if self.needs_view { &rule_view } else { view.request };
        let mut expressions = Expressions::Succeeded;
        if self.allows(view, request) {
            return expressions;
        }
        if self.denies(view, request) {
            let start = matches.keys.len();
            // The key is only for the log: the request is denied even without one.
            let _ = rule.by.key(request, &mut matches.keys);
            matches.deny(number, DenyReason::Listed, start);
            return expressions;
        }
        let start = matches.keys.len();
        if subject == Subject::Call && rule.missing != Missing::Deny {
            if rule.by.key_of_call(request, &mut matches.keys) == KeyExpressions::Failed {
                expressions = Expressions::Failed;
            }
            if request.ip().is_none() && rule.by.has_address() {
                self.warn_of_unknown_client("set it around the call, with `Caller::with_ip` and `Caller::scope`");
            }
        } else if let Err(missing) = rule.by.key(request, &mut matches.keys) {
            // Requests whose expression fails share one count, so that a client can't evade the rule with a failing
            // expression.
            if missing.is_failure() {
                expressions = Expressions::Failed;
            }
            if missing.is_unknown_client() {
                self.warn_of_unknown_client(
                    "with axum, serve `into_make_service_with_connect_info::<SocketAddr>()`; with another server, add a \
                     `ClientAddress` to the extensions of each request, or pass a function to \
                     `RateLimitLayer::client_address`",
                );
            }
            // An invalid token is not a missing token: the upstream may accept it.
            let is_counted = missing.is_doubt() && rule.by.doubtful_key(request, &mut matches.keys).is_ok();
            match rule.missing {
                Missing::Skip if !missing.is_failure() && !is_counted => return expressions,
                Missing::Deny => {
                    matches.keys.truncate(start);
                    matches.deny(number, DenyReason::Missing, start);
                    return expressions;
                }
                // No other key is empty, so this one is unique.
                Missing::Skip | Missing::Shared => {}
            }
        }
        let cost = match &rule.cost {
            CostOf::Request => Some(Cost::ONE),
            CostOf::Fixed(cost) => Some(*cost),
            CostOf::Expression(expression) => match (expression.count(request), rule.cost_default) {
                (Ok(count), _) => match count.max(rule.cost_min) {
                    0 => None,
                    count => Some(Cost::new(count).unwrap_or(Cost::MAX)),
                },
                (Err(_), Some(cost)) => {
                    expressions = Expressions::Failed;
                    Some(cost)
                }
                // The request is denied, so that a client can't lower its cost with a failing expression.
                (Err(_), None) => {
                    matches.keys.truncate(start);
                    matches.deny(number, DenyReason::Cost, start);
                    return Expressions::Failed;
                }
            },
        };
        self.add(number, start, cost.and_then(|cost| hits.times(cost)), matches);
        expressions
    }

    #[cold]
    fn warn_of_unknown_client(&self, fix: &str) {
        if self.unknown_client_log.check().is_granted() {
            let rule = &self.rule.name;
            tracing::warn!("rule `{rule}` counts by the client's address, which is unknown: {fix}");
        }
    }

    /// Adds the rule with this key and cost (`None`: free).
    pub(super) fn apply_key(&self, number: u32, key: &[u8], cost: Option<Cost>, matches: &mut Matches) {
        let start = matches.keys.len();
        matches.keys.extend_from_slice(key);
        self.add(number, start, cost, matches);
    }

    /// Adds the rule with the key that begins at `start`.
    #[inline]
    fn add(&self, number: u32, start: usize, cost: Option<Cost>, matches: &mut Matches) {
        let key = KeyRange::new(start, matches.keys.len());
        if let Some(rule) = self.charges {
            if let Some(cost) = cost.filter(|cost| *cost != Cost::ZERO) {
                matches.add_charge(ChargedRule { rule, by: number, cost, mode: self.rule.mode, key });
            }
            return;
        }
        let limits = self.limits_of(&matches.keys[start..]);
        let charged_at = ChargedAt::of(self.rule.count.as_ref());
        let (mode, counted_in) = (self.rule.mode, self.counted_in);
        let applied = |cost| MatchedRule { rule: number, limits, cost, key, mode, counted_in, charged_at };
        match cost {
            Some(cost) => matches.add(applied(cost), self.needs_of(limits)),
            None => matches.add_free(applied(Cost::ONE), Needs::STATUS.only_if(self.rule.count.is_some())),
        }
    }

    #[inline]
    fn needs_of(&self, limits: u32) -> Needs {
        self.needs.get(limits as usize).copied().unwrap_or_default()
    }
}

/// Returns the needs of a request that matches a rule, and these of its limits.
fn needs(rule: &Rule, counted_in: CountedIn, limits: &[CompiledLimit]) -> Needs {
    let has = |is_so: fn(&CompiledLimit) -> bool| limits.iter().any(is_so);
    [
        (Needs::NOT_ONE_LIMIT, limits.len() != 1),
        (Needs::QUEUES, has(|limit| limit.queue.is_some())),
        (Needs::RESERVATIONS, has(|limit| limit.reserved.is_some())),
        (Needs::RELEASE, has(|limit| limit.is_returned)),
        (Needs::SHARED, counted_in == CountedIn::Shared),
        (Needs::SHADOW, rule.mode == Mode::Shadow),
        (Needs::LOAD, rule.load.is_some()),
        (Needs::STATUS, rule.count.is_some()),
        (Needs::LOOK, ChargedAt::of(rule.count.as_ref()) == ChargedAt::Response),
    ]
    .into_iter()
    .fold(Needs::default(), |all, (need, is_needed)| all.and(need.only_if(is_needed)))
}

/// Returns the key and the cost of a rule, if nothing else depends on the request once its host and path match.
fn simple(rule: &Rule) -> Option<(SimpleKey, Cost)> {
    let has_lists = !rule.allow.is_empty() || !rule.deny.is_empty();
    let has_others = rule.charges.is_some() || rule.count.is_some();
    if has_lists || !rule.overrides.is_empty() || has_others || !rule.matches.is_host_and_path() {
        return None;
    }
    let cost = match &rule.cost {
        CostOf::Request => Cost::ONE,
        CostOf::Fixed(cost) => *cost,
        CostOf::Expression(_) => return None,
    };
    Some((rule.by.simple()?, cost))
}

/// When the keys of requests are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordsKeys {
    /// Keys are always recorded.
    Always,
    /// Keys are recorded only for the log.
    ForLog,
}

/// The subject that a rule is evaluated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A request that it matches.
    Request,
    /// A call that names it.
    Call,
}

/// How many requests a request stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hits {
    /// The number of requests to charge. If it is 0, no limit is queried.
    Charge(u64),
    /// The number of requests to peek. If it is 0, the query is whether the limit is exceeded.
    Peek(u64),
}

impl Hits {
    #[inline]
    pub(super) fn of(request: &dyn Attributes, purpose: Purpose) -> Self {
        match purpose {
            Purpose::Charge => Self::Charge(request.hits()),
            Purpose::Peek => Self::Peek(request.hits()),
        }
    }

    /// Multiplies the cost of one request; `None` if nothing is asked.
    #[inline]
    fn times(self, cost: Cost) -> Option<Cost> {
        match self {
            Self::Charge(1) | Self::Peek(1) => Some(cost),
            Self::Charge(0) => None,
            Self::Peek(0) => Some(Cost::ZERO),
            Self::Charge(hits) | Self::Peek(hits) => {
                Some(Cost::new(cost.get().saturating_mul(hits)).unwrap_or(Cost::MAX))
            }
        }
    }
}

/// Whether the expressions of a rule succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expressions {
    Succeeded,
    Failed,
}

/// Returns the limit on the bytes of bodies; the existing limit is kept or changed.
fn bandwidth(rule: &Rule, known: Option<&CompiledRule>) -> Option<Limit> {
    let rate = rule.bandwidth.as_ref()?.rate;
    let before = known.and_then(|known| Some((known.bandwidth.as_ref()?, known.rule.bandwidth.as_ref()?.rate)));
    Some(match before {
        Some((limit, before)) if before == rate => limit.clone(),
        Some((limit, _)) => limit.changed_to(TokenBucket::new(rate)),
        None => Limit::new(rule.name.clone(), TokenBucket::new(rate)),
    })
}

/// Returns the memory bound of a rule: the known one, unless it has changed.
fn memory(rule: &Rule, known: Option<&CompiledRule>) -> Option<MemoryBound> {
    let bytes = rule.memory?;
    let before = known.and_then(|known| known.memory.clone()).filter(|bound| bound.bytes() == bytes);
    Some(before.unwrap_or_else(|| MemoryBound::new(bytes)))
}

/// Compiles limits and names them: the first has the rule's name, the others append their position.
fn compile_limits(
    rule: &Rule,
    limits: &[LimitRule],
    name: &str,
    known: Option<(&[CompiledLimit], &[LimitRule])>,
) -> Vec<CompiledLimit> {
    let (known, before) = known.unwrap_or((&[], &[]));
    let pairs = match rule.counted_in {
        CountedIn::Local => previous_limits::closest(limits, before),
        // The shared store identifies a limit by its name, which contains its position.
        CountedIn::Shared => previous_limits::by_index(limits, before),
    };
    let compiled = limits.iter().enumerate().zip(pairs).map(|((index, limit), pair)| {
        let before = pair.and_then(|pair| Some((known.get(pair)?, before.get(pair)?)));
        CompiledLimit::new(limit, rule, &name_of(name, index), before)
    });
    compiled.collect()
}

fn name_of(rule: &str, index: usize) -> String {
    if index == 0 { rule.to_owned() } else { format!("{rule}#{}", index + 1) }
}
