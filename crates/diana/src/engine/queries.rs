//! The queries of one request, in the order of the rules.

use super::{Return, Verdict};
use diana_core::{Answer, Ask, Decision};
use diana_rules::rule::{CountedIn, Mode};
use diana_rules::ruleset::{CompiledLimit, MatchedRule};
use smallvec::SmallVec;

/// A subset of the queries of a request.
pub(super) type AskList<'a> = SmallVec<[Ask<'a>; 8]>;

/// Which queries are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of active rules, local or shared.
    Everything,
    /// Those of active rules that are counted in this process.
    Local,
    /// Those of active rules that are counted in the shared store.
    Shared,
    /// Those of the matched rule at this index, active or not.
    Shadow(usize),
}

impl Scope {
    fn has(self, nth: usize, applied: &MatchedRule) -> bool {
        match self {
            Self::Everything | Self::Local | Self::Shared => applied.mode == Mode::Enforced,
            Self::Shadow(meant) => nth == meant,
        }
    }

    fn has_limit(self, limit: &CompiledLimit) -> bool {
        match self {
            Self::Everything | Self::Shadow(_) => true,
            Self::Local => limit.home == CountedIn::Local,
            Self::Shared => limit.home == CountedIn::Shared,
        }
    }
}

/// Builds queries from the matched rules.
pub(super) struct Queries;

impl Queries {
    /// Returns the rules and limits in scope, one pair per query.
    pub(super) fn places(verdict: &Verdict, part: Scope) -> impl Iterator<Item = (&MatchedRule, &CompiledLimit)> {
        let applied =
            verdict.found().applied().iter().enumerate().filter(move |(nth, applied)| part.has(*nth, applied));
        applied.flat_map(move |(_, applied)| {
            let limits = verdict.rules().rule(applied.rule).map_or(&[][..], |rule| rule.limits(applied));
            limits.iter().filter(move |limit| part.has_limit(limit)).map(move |limit| (applied, limit))
        })
    }

    /// Returns the query if there is exactly one and it is decided in this process.
    pub(super) fn only(verdict: &Verdict) -> Option<Ask<'_>> {
        let [applied] = verdict.found().applied() else { return None };
        let [limit] = verdict.rules().rule(applied.rule)?.limits(applied) else { return None };
        let here = verdict.made().here;
        (here.has(0, applied) && here.has_limit(limit)).then(|| ask(verdict, applied, limit))
    }

    /// Returns the queries in scope.
    pub(super) fn of(verdict: &Verdict, part: Scope) -> AskList<'_> {
        // Loops, since this is on the hot path, and iterator chains take three times as many instructions.
        let (rules, found) = (verdict.rules(), verdict.found());
        let mut asks = AskList::new();
        for (nth, applied) in found.applied().iter().enumerate() {
            if !part.has(nth, applied) {
                continue;
            }
            let Some(rule) = rules.rule(applied.rule) else { continue };
            for limit in rule.limits(applied).iter().filter(|limit| part.has_limit(limit)) {
                asks.push(ask(verdict, applied, limit));
            }
        }
        asks
    }

    /// Returns the queries to refund, with their answers.
    pub(super) fn given_back<'a>(
        verdict: &'a Verdict,
        part: Scope,
        made: &Decision,
        what: Return,
    ) -> (AskList<'a>, Decision) {
        let emptied = &verdict.made().emptied;
        let both = Self::places(verdict, part).zip(made.answers()).enumerate();
        let both = both.filter(|(nth, ((_, limit), _))| {
            (what == Return::Everything || limit.is_returned)
                && (emptied.is_empty() || !emptied.contains(&(part, *nth)))
        });
        let (asks, answers): (AskList<'a>, SmallVec<[Answer; 8]>) =
            both.map(|(_, ((applied, limit), answer))| (ask(verdict, applied, limit), *answer)).unzip();
        (asks, Decision::from(answers).with_note(made.note()))
    }
}

pub(super) fn ask<'a>(verdict: &'a Verdict, applied: &MatchedRule, limit: &'a CompiledLimit) -> Ask<'a> {
    Ask { limit: &limit.limit, key: verdict.found().key(applied), cost: applied.cost, max_wait: limit.max_wait }
}
