//! The queries of one request: one for each limit of its rules, in the order of the rules.

use super::Verdict;
use crate::RuleSet;
use crate::ruleset::{ChargedAt, CompiledLimit, MatchedRule, Matches};
use diana_core::{Answer, Ask, Cost, Decision, Limit, MaxWait};
use diana_rules::rule::{CountedIn, Mode};
use smallvec::SmallVec;

/// Queries of a request.
pub(super) type AskList<'a> = SmallVec<[Ask<'a>; 16]>;

/// A selection of the queries of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All queries of active rules, local or shared.
    Everything,
    /// The queries of active rules that are counted in this process.
    Local,
    /// The queries of active rules that are counted in the shared store.
    Shared,
    /// The queries of the matched rule at this index, active or not.
    Shadow(usize),
    /// The queries of active rules that are charged only after the response, in this store, and are peeked before it.
    Look(CountedIn),
}

impl Scope {
    fn has(self, index: usize, matched: &MatchedRule) -> bool {
        match self {
            Self::Everything | Self::Local | Self::Shared => {
                matched.mode == Mode::Enforced && matched.charged_at == ChargedAt::Request
            }
            Self::Shadow(meant) => index == meant,
            Self::Look(counted_in) => {
                matched.mode == Mode::Enforced
                    && matched.charged_at == ChargedAt::Response
                    && matched.counted_in == counted_in
            }
        }
    }

    fn has_limit(self, limit: &CompiledLimit) -> bool {
        match self {
            Self::Everything | Self::Shadow(_) | Self::Look(_) => true,
            Self::Local => limit.counted_in == CountedIn::Local,
            Self::Shared => limit.counted_in == CountedIn::Shared,
        }
    }

    pub(super) fn is_shadow(self) -> bool {
        matches!(self, Self::Shadow(_))
    }
}

/// The decision of one store about the queries in scope.
#[derive(Debug)]
pub(super) struct ScopedDecision {
    pub(super) scope: Scope,
    pub(super) decision: Decision,
    /// Whether this process made it: because the limits are counted here, or because the shared store failed.
    pub(super) is_local: bool,
}

/// Which charges of a granted request are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charges {
    All,
    /// The concurrency permits, which are held while the request runs.
    Held,
}

/// Returns the query of one limit.
#[inline(always)]
fn ask<'a>(matches: &'a Matches, matched: &MatchedRule, limit: &'a CompiledLimit) -> Ask<'a> {
    Ask { limit: &limit.limit, key: matches.key(matched), cost: matched.cost, max_wait: limit.max_wait }
}

/// Adds the queries in scope.
#[inline(always)]
pub(super) fn add_asks<'a>(rules: &'a RuleSet, matches: &'a Matches, scope: Scope, asks: &mut AskList<'a>) {
    // Loops, since this is on the hot path, and iterator chains take three times as many instructions.
    for (index, matched) in matches.matched().iter().enumerate() {
        if !scope.has(index, matched) {
            continue;
        }
        let Some(rule) = rules.rule(matched.rule) else { continue };
        for limit in rule.limits(matched) {
            if scope.has_limit(limit) {
                asks.push(ask(matches, matched, limit));
            }
        }
    }
}

/// Returns the query of a request with one limit.
#[inline(always)]
pub(super) fn only_ask<'a>(rules: &'a RuleSet, matches: &'a Matches) -> Option<Ask<'a>> {
    let matched = matches.matched().first()?;
    Some(ask(matches, matched, rules.rule(matched.rule)?.limits(matched).first()?))
}

impl Verdict {
    /// Returns the rules and limits in scope, one pair per query.
    pub(super) fn limits_in(&self, scope: Scope) -> impl Iterator<Item = (&MatchedRule, &CompiledLimit)> {
        let matched =
            self.matches().matched().iter().enumerate().filter(move |(index, matched)| scope.has(*index, matched));
        matched.flat_map(move |(_, matched)| {
            let limits = self.rules().rule(matched.rule).map_or(&[][..], |rule| rule.limits(matched));
            limits.iter().filter(move |limit| scope.has_limit(limit)).map(move |limit| (matched, limit))
        })
    }

    /// Returns the query of one limit.
    pub(super) fn ask<'a>(&'a self, matched: &MatchedRule, limit: &'a CompiledLimit) -> Ask<'a> {
        ask(self.matches(), matched, limit)
    }

    /// Returns the queries in scope.
    pub(super) fn asks(&self, scope: Scope) -> AskList<'_> {
        let mut asks = AskList::new();
        add_asks(self.rules(), self.matches(), scope, &mut asks);
        asks
    }

    /// Returns the queries of a decision whose charges are returned, with their answers.
    pub(super) fn charged(&self, scoped: &ScopedDecision, charges: Charges) -> (AskList<'_>, Decision) {
        let zeroed = &self.unusual.settled_to_zero;
        let queries = self.limits_in(scoped.scope).zip(scoped.decision.answers()).enumerate();
        let queries = queries.filter(|(index, ((_, limit), _))| {
            (charges == Charges::All || limit.is_returned)
                && (zeroed.is_empty() || !zeroed.contains(&(scoped.scope, *index)))
        });
        let (asks, answers): (AskList<'_>, SmallVec<[Answer; 8]>) =
            queries.map(|(_, ((matched, limit), answer))| (self.ask(matched, limit), *answer)).unzip();
        (asks, Decision::from(answers).with_note(scoped.decision.note()))
    }
}

/// Queries that outlive their request.
#[derive(Debug)]
pub(super) struct OwnedAsks(SmallVec<[OwnedAsk; 2]>);

#[derive(Debug)]
struct OwnedAsk {
    limit: Limit,
    key: SmallVec<[u8; 32]>,
    cost: Cost,
    max_wait: MaxWait,
    max_reserved: Option<usize>,
}

impl OwnedAsks {
    /// Copies the queries of a verdict that are in scope.
    pub(super) fn of(verdict: &Verdict, scope: Scope) -> Self {
        let asks = verdict.limits_in(scope);
        Self(asks.map(|(matched, limit)| OwnedAsk::new(verdict.ask(matched, limit), limit.reserved)).collect())
    }

    /// Copies these queries.
    pub(super) fn copied(asks: &AskList<'_>) -> Self {
        Self(asks.iter().map(|ask| OwnedAsk::new(*ask, None)).collect())
    }

    pub(super) fn as_asks(&self) -> AskList<'_> {
        let asks = self.0.iter();
        asks.map(|OwnedAsk { limit, key, cost, max_wait, .. }| Ask { limit, key, cost: *cost, max_wait: *max_wait })
            .collect()
    }

    /// Returns the bound on reservations of each query, if it has one.
    pub(super) fn max_reserved(&self) -> impl Iterator<Item = Option<usize>> {
        self.0.iter().map(|owned| owned.max_reserved)
    }
}

impl OwnedAsk {
    fn new(ask: Ask<'_>, max_reserved: Option<usize>) -> Self {
        let Ask { limit, key, cost, max_wait } = ask;
        Self { limit: limit.clone(), key: SmallVec::from_slice(key), cost, max_wait, max_reserved }
    }
}
