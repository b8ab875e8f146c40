//! A rule with the limits that stores know.

use super::counters::{Counters, RequestOutcome, RuleCounts};
use super::diff;
use super::matches::{DenyReason, MatchedRule, Matches};
use crate::attributes::Attributes;
use crate::key::{KeyBytes, KeyExpressions};
use crate::limit::LimitRule;
use crate::matching::{RequestView, WithParameters};
use crate::rule::{CostOf, CountedIn, Missing, Rule};
use diana_core::{Adaptive, Concurrency, Cost, LeakyBucket, Limit, MaxWait, TokenBucket, Waiting};
use hashbrown::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A rule, the limits that stores know, and what has been noticed about it.
#[derive(Debug)]
pub struct CompiledRule {
    rule: Rule,
    /// Its own limits, and behind them those of each override.
    limits: Vec<Box<[CompiledLimit]>>,
    overrides: HashMap<KeyBytes, u32>,
    /// The bytes that it lets flow.
    bandwidth: Option<Limit>,
    /// Whether it asks for what only it can say about a request: the parameters of the path.
    needs_view: bool,
    /// Whether it has a limit whose permits are given back.
    is_held: bool,
    /// Where its counts are: in this process, if it has none that could be elsewhere.
    home: CountedIn,
    /// Shared with the rule that takes its place, so that requests under way are counted as well.
    counters: Arc<Counters>,
}

/// A key that has another limit than before.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// Whose.
    pub key: &'a [u8],
    /// The limit that it had.
    pub from: &'a Limit,
    /// The limit that it has from now on.
    pub to: &'a Limit,
}

/// A limit, and how requests are to ask for it.
#[derive(Debug)]
pub struct CompiledLimit {
    /// As stores know it.
    pub limit: Limit,
    /// How long it may make a request wait.
    pub max_wait: MaxWait,
    /// Whether what it grants must be given back when the request is done.
    pub is_returned: bool,
    /// How many stand in line for one key at most, where those who `wait` must stand in line: where the algorithm can't tell
    /// when their turn will come.
    pub line: Option<usize>,
    /// How many of one key may wait for times that the algorithm has promised them, where the rule's `queue` bounds them and
    /// `max_wait` can't.
    pub reserved: Option<usize>,
    /// Where it is counted: where its rule is, but for what is always each process's own.
    pub home: CountedIn,
}

/// How many stand in line for one key, where the rule has no `queue`.
const LONGEST_LINE: usize = 1_000;

impl CompiledLimit {
    fn new(own: &LimitRule, rule: &Rule, name: &str, known: Option<(&Self, &LimitRule)>) -> Self {
        let limit = match known {
            Some((known, before)) if before.configured == own.configured => known.limit.clone(),
            Some((known, _)) => own.configured.changed(&known.limit),
            None => own.configured.limit(name),
        };
        // Those in a leaky bucket's line wait, that is what the line is for; it is bounded by its own length. So is what a
        // concurrency lets in after a wait.
        let delays = |places: &Concurrency| places.capacity() > places.limit();
        let stands_in_line = own.configured.algorithm::<LeakyBucket>().is_some()
            || own.configured.algorithm::<Concurrency>().is_some_and(delays);
        let max_wait = match rule.wait {
            Some(wait) => MaxWait::up_to(wait.min(own.longest_line(rule.queue))),
            None if stands_in_line => MaxWait::FOREVER,
            None => MaxWait::NONE,
        };
        let is_returned = own.configured.algorithm::<Concurrency>().is_some();
        let line = line(rule, &limit);
        let is_bounded = stands_in_line || own.longest_line(rule.queue) < Duration::MAX;
        let reserves = rule.wait.is_some() && limit.waiting() == Waiting::Reserves && !is_bounded;
        let reserved = rule.queue.filter(|_| reserves).map(|queue| usize::try_from(queue).unwrap_or(usize::MAX));
        Self { limit, max_wait, is_returned, line, reserved, home: rule.home }
    }

    /// As many at a time as keeps answers quick, in this process.
    fn adaptive(rule: &Rule, name: &str, known: Option<&Self>) -> Self {
        let limit = known.map_or_else(|| Limit::new(name, Adaptive::default()), |known| known.limit.clone());
        let (max_wait, line) = (rule.wait.map_or(MaxWait::NONE, MaxWait::up_to), line(rule, &limit));
        Self { limit, max_wait, is_returned: true, line, reserved: None, home: CountedIn::Local }
    }
}

/// How many stand in line for one key of a limit, if those who wait do.
fn line(rule: &Rule, limit: &Limit) -> Option<usize> {
    let queues = rule.wait.is_some() && limit.waiting() == Waiting::Queues;
    let longest = rule.queue.map_or(LONGEST_LINE, |queue| usize::try_from(queue).unwrap_or(usize::MAX));
    queues.then_some(longest)
}

impl CompiledRule {
    pub(super) fn new(rule: Rule, known: Option<&Self>) -> Self {
        // Who counts somebody else, or elsewhere, starts anew.
        let known = known.filter(|known| known.rule.by == rule.by && known.rule.home == rule.home);
        let own_known = known.map(|known| (&*known.limits[0], &*known.rule.limits));
        let mut own = in_force(&rule, &rule.limits, &rule.name, own_known);
        if rule.adaptive {
            let known = known.filter(|known| known.rule.adaptive).and_then(|known| known.limits[0].last());
            own.push(CompiledLimit::adaptive(&rule, &name_of(&rule.name, own.len()), known));
        }
        let mut limits = vec![own.into_boxed_slice()];
        let mut overrides = HashMap::new();
        for (nth, own) in rule.overrides.iter().enumerate() {
            let name = format!("{}@{}", rule.name, own.written);
            let before = known.and_then(|known| {
                let place = *known.overrides.get(&own.key)? as usize;
                Some((&**known.limits.get(place)?, &*known.rule.overrides.get(place - 1)?.limits))
            });
            overrides.insert(own.key.clone(), u32::try_from(nth + 1).unwrap_or(0));
            limits.push(in_force(&rule, &own.limits, &name, before).into_boxed_slice());
        }
        let counters = known.map_or_else(Arc::default, |known| Arc::clone(&known.counters));
        let needs_view = rule.by.asks_anything() || rule.attributes().any(WithParameters::is_about);
        let is_held = limits.iter().any(|limits| limits.iter().any(|limit| limit.is_returned));
        let is_local = limits.iter().flatten().all(|limit| limit.home == CountedIn::Local);
        let home = if is_local { CountedIn::Local } else { rule.home };
        let bandwidth = bandwidth(&rule, known);
        Self { rule, limits, overrides, bandwidth, needs_view, is_held, home, counters }
    }

    /// The rule as the file says it.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// The limits that apply to one key.
    pub fn limits(&self, applied: &MatchedRule) -> &[CompiledLimit] {
        self.limits_at(applied.limits)
    }

    /// Its own limits (0), or those of an override.
    pub(super) fn limits_at(&self, place: u32) -> &[CompiledLimit] {
        self.limits.get(place as usize).map_or(&[], |limits| limits)
    }

    /// The bytes that it lets flow, as stores know them: a bucket for each key. Bodies take from it piece by piece.
    pub fn bandwidth(&self) -> Option<&Limit> {
        self.bandwidth.as_ref()
    }

    /// The keys whose limits are others once `after` is in force, because an override came or went: from which limit to which.
    pub(super) fn moves_to<'a>(&'a self, after: &'a Self) -> impl Iterator<Item = Move<'a>> {
        let all = self.overrides.keys().chain(after.overrides.keys().filter(|key| !self.overrides.contains_key(*key)));
        let moved = all.filter(|key| self.overrides.contains_key(*key) != after.overrides.contains_key(*key));
        moved.flat_map(|key| {
            let (from, to) = (self.limits_of(key) as usize, after.limits_of(key) as usize);
            let limits = self.limits.get(from).into_iter().zip(after.limits.get(to));
            let each = limits.flat_map(|(from, to)| from.iter().zip(to.iter()));
            // What is in flight comes back to the limit that it was taken from.
            let each = each.filter(|(from, to)| !from.is_returned && !to.is_returned);
            each.map(move |(from, to)| Move { key, from: &from.limit, to: &to.limit })
        })
    }

    /// Which limits a key has: its own, or the rule's.
    pub(super) fn limits_of(&self, key: &[u8]) -> u32 {
        if self.overrides.is_empty() { 0 } else { self.overrides.get(key).copied().unwrap_or(0) }
    }

    /// Whether it bounds those who wait for promised times.
    pub(super) fn has_reserved(&self) -> bool {
        self.limits.iter().flatten().any(|limit| limit.reserved.is_some())
    }

    pub(super) fn all_limits(&self) -> impl Iterator<Item = &Limit> {
        let counted = self.limits.iter().flat_map(|limits| limits.iter().map(|limit| &limit.limit));
        counted.chain(&self.bandwidth)
    }

    /// What became of the requests that it was about.
    pub fn counted(&self) -> RuleCounts {
        self.counters.all()
    }

    /// Counts what became of a request.
    #[inline]
    pub fn count(&self, fate: RequestOutcome) {
        self.counters.count(fate);
    }

    /// How many of its expressions have failed. A `when` that fails matches, a cost that fails is the rule's `cost_default` or
    /// denies, and a key that fails is shared by all such requests.
    pub fn failures(&self) -> u64 {
        self.counted().failures
    }

    pub(super) fn count_failure(&self) {
        self.counters.count_failure();
    }

    /// How many requests it would have refused, if it were not a shadow.
    pub fn shadow_refusals(&self) -> u64 {
        self.counted().shadow_refused
    }

    /// Whether a request is in the rule's `allow`, whichever form of its path counts.
    pub(super) fn allows(&self, seen: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let Rule { allow, by, matches, .. } = &self.rule;
        let other = |form| allow.contains(by, seen, &matches.view_of(seen, form));
        !allow.is_empty() && allow.contains(by, seen, request) && seen.other_paths().all(other)
    }

    /// Whether a request is in the rule's `deny` by any form of its path.
    fn denies(&self, seen: &RequestView<'_>, request: &dyn Attributes) -> bool {
        let Rule { deny, by, matches, .. } = &self.rule;
        let other = |form| deny.may_contain(by, seen, &matches.view_of(seen, form));
        !deny.is_empty() && (deny.may_contain(by, seen, request) || seen.other_paths().any(other))
    }

    /// Finds whose a request, or a call, is that the rule is about, and what it costs.
    pub(super) fn apply(&self, number: u32, seen: &RequestView<'_>, asks: Asks, found: &mut Matches) -> Expressions {
        let rule = &self.rule;
        let view = rule.matches.view(seen);
        let request: &dyn Attributes = if self.needs_view { &view } else { seen.request };
        let mut expressions = Expressions::Good;
        if self.allows(seen, request) {
            return expressions;
        }
        if self.denies(seen, request) {
            found.refuse(number, DenyReason::Listed);
            return expressions;
        }
        let start = found.keys.len();
        if asks == Asks::Call && rule.missing != Missing::Deny {
            if rule.by.key_of_call(request, &mut found.keys) == KeyExpressions::Failed {
                expressions = Expressions::Failed;
            }
        } else if let Err(missing) = rule.by.key(request, &mut found.keys) {
            // Whoever can make an expression fail must not get round the rule by that: they are counted together.
            if missing.is_failure() {
                expressions = Expressions::Failed;
            }
            // A token that can't be believed is not the same as none: the service may accept it.
            let is_counted = missing.is_doubt() && rule.by.doubtful_key(request, &mut found.keys).is_ok();
            match rule.missing {
                Missing::Skip if !missing.is_failure() && !is_counted => return expressions,
                Missing::Deny => {
                    found.keys.truncate(start);
                    found.refuse(number, DenyReason::Missing);
                    return expressions;
                }
                // No key is empty, so nobody else has this one.
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
                // Whoever can make an expression fail must not pay less by that.
                (Err(_), None) => {
                    found.keys.truncate(start);
                    found.refuse(number, DenyReason::Cost);
                    return Expressions::Failed;
                }
            },
        };
        self.add(number, start, cost, found);
        expressions
    }

    /// Finds that a request with this key and cost (none: it is free) is one that the rule is about.
    pub(super) fn apply_key(&self, number: u32, key: &[u8], cost: Option<Cost>, found: &mut Matches) {
        let start = found.keys.len();
        found.keys.extend_from_slice(key);
        self.add(number, start, cost, found);
    }

    /// Adds the rule to what was found, with the key that begins at `start`.
    fn add(&self, number: u32, start: usize, cost: Option<Cost>, found: &mut Matches) {
        let limits = self.limits_of(&found.keys[start..]);
        let key = (place(start), place(found.keys.len()));
        let applied = |cost| MatchedRule { rule: number, limits, cost, key, mode: self.rule.mode, home: self.home };
        match cost {
            Some(cost) => found.add(applied(cost), self.is_held),
            None => found.add_free(applied(Cost::ONE)),
        }
    }
}

/// Who asks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asks {
    /// A request that it is about.
    Request,
    /// A call that names it.
    Call,
}

/// Whether the expressions of a rule came out well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expressions {
    Good,
    Failed,
}

/// A place among the keys of a request, of which there are never 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The bytes that a rule lets flow: the same limit as before, if it had one.
fn bandwidth(rule: &Rule, known: Option<&CompiledRule>) -> Option<Limit> {
    let rate = rule.bandwidth.as_ref()?.rate;
    let before = known.and_then(|known| Some((known.bandwidth.as_ref()?, known.rule.bandwidth.as_ref()?.rate)));
    Some(match before {
        Some((limit, before)) if before == rate => limit.clone(),
        Some((limit, _)) => limit.changed_to(TokenBucket::new(rate)),
        None => Limit::new(rule.name.clone(), TokenBucket::new(rate)),
    })
}

/// Limits with their names: the first has the rule's, the others their place behind it.
fn in_force(
    rule: &Rule,
    limits: &[LimitRule],
    name: &str,
    known: Option<(&[CompiledLimit], &[LimitRule])>,
) -> Vec<CompiledLimit> {
    let (known, before) = known.unwrap_or((&[], &[]));
    let pairs = match rule.home {
        CountedIn::Local => diff::closest(limits, before),
        // Others who share it know a limit by its name, which tells its place.
        CountedIn::Shared => diff::by_place(limits, before),
    };
    let each = limits.iter().enumerate().zip(pairs).map(|((nth, own), pair)| {
        let before = pair.and_then(|pair| Some((known.get(pair)?, before.get(pair)?)));
        CompiledLimit::new(own, rule, &name_of(name, nth), before)
    });
    each.collect()
}

fn name_of(rule: &str, nth: usize) -> String {
    if nth == 0 { rule.to_owned() } else { format!("{rule}#{}", nth + 1) }
}
