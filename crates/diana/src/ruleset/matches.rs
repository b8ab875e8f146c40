//! The rules that match one request.

use super::plan::Needs;
use diana_core::Cost;
use diana_rules::key::KeyBytes;
use diana_rules::matching::index::Candidates;
use diana_rules::rule::{CountByStatus, CountedIn, Mode, OnStatus};
use smallvec::SmallVec;
use std::fmt;

/// The rules that match a request, each with its key and cost. Reuse it to avoid allocations.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    matched: Vec<MatchedRule>,
    uncharged: Vec<MatchedRule>,
    denied: Vec<DeniedBy>,
    charged: Vec<ChargedRule>,
    /// The matches of each request, if several are decided together.
    parts: Vec<PartMatches>,
    pub(super) keys: KeyBytes,
    /// The last simple key of the request: the number of its `by`, and its position.
    pub(super) last_key: Option<(u32, KeyRange)>,
    /// The rules that may match, while they are checked.
    pub(super) candidates: Candidates,
    needs: Needs,
}

/// The capacity of the keys that is kept.
const LARGE: usize = 4 << 10;

/// A rule that matches a request.
#[derive(Clone, Debug)]
pub struct MatchedRule {
    /// The index of the rule.
    pub rule: u32,
    /// The cost of the request.
    pub cost: Cost,
    /// Whether the rule denies requests.
    pub mode: Mode,
    /// Where the counts are stored.
    pub counted_in: CountedIn,
    /// When the cost is charged.
    pub charged_at: ChargedAt,
    pub(super) limits: u32,
    pub(super) key: KeyRange,
}

/// When a rule charges a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChargedAt {
    /// When the request is decided.
    #[default]
    Request,
    /// After the response, if it has one of the statuses of `count`. Before, the rule only looks: it denies a request
    /// whose cost would exceed the limit, and charges nothing.
    Response,
}

impl ChargedAt {
    pub(super) fn of(count: Option<&CountByStatus>) -> Self {
        match count {
            Some(CountByStatus { then: OnStatus::Charge, .. }) => Self::Response,
            _ => Self::Request,
        }
    }
}

/// The position of a key in [`Matches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange(u32, u32);

impl KeyRange {
    pub(super) fn new(start: usize, end: usize) -> Self {
        // The keys of a request are never 4 GiB long.
        let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self(offset(start), offset(end))
    }
}

impl MatchedRule {
    /// Returns the position of its key.
    pub fn key_range(&self) -> KeyRange {
        self.key
    }
}

impl DeniedBy {
    /// Returns the position of its key, which is empty if the request has none.
    pub fn key_range(&self) -> KeyRange {
        self.key
    }
}

/// A rule whose counts another rule charges, whether they are over the limit or not.
#[derive(Clone, Debug)]
pub struct ChargedRule {
    /// The index of the rule that is charged.
    pub rule: u32,
    /// The index of the rule that charges it (`charges`).
    pub by: u32,
    /// The cost of the request.
    pub cost: Cost,
    /// The mode of the rule that charges it: a shadow rule only counts requests.
    pub mode: Mode,
    pub(super) key: KeyRange,
}

/// The matches of one of several requests that are decided together.
#[derive(Clone, Debug, Default)]
struct PartMatches {
    /// The indexes in [`Matches::matched`].
    matched: SmallVec<[u32; 4]>,
    /// The first of its denials.
    denied_from: u32,
}

/// A rule that denies the request regardless of its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedBy {
    /// The index of the rule.
    pub rule: u32,
    /// The reason.
    pub why: DenyReason,
    key: KeyRange,
}

/// Why a rule denies a request regardless of its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenyReason {
    /// The request is in the rule's `deny`.
    Listed,
    /// The key is missing, and the rule has `missing: deny`.
    Missing,
    /// The cost expression failed, and the rule has no `cost_default`.
    Cost,
    /// This resource is over the rule's `load`.
    Overloaded(Resource),
}

/// A resource of the machine that can be overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// CPU.
    Cpu,
    /// Memory.
    Memory,
    /// Open connections.
    Connections,
    /// Network traffic.
    Traffic,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Connections => "connections",
            Self::Traffic => "traffic",
        })
    }
}

impl Matches {
    /// Returns the rules that count the request, in the order of the file.
    pub fn matched(&self) -> &[MatchedRule] {
        &self.matched
    }

    /// Returns the needs of the decision.
    #[inline]
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Returns the rules that match the request but do not count it, since it costs 0 (`cost_min: 0`). They charge it if its
    /// actual cost turns out to be higher. Their `cost` is meaningless.
    pub fn uncharged(&self) -> &[MatchedRule] {
        &self.uncharged
    }

    /// Returns the rules that deny the request regardless of their counts.
    pub fn denied(&self) -> &[DeniedBy] {
        &self.denied
    }

    /// Returns the rules that the request charges.
    pub fn charged(&self) -> &[ChargedRule] {
        &self.charged
    }

    /// Returns the request's key for a rule that it charges.
    pub fn charged_key(&self, charged: &ChargedRule) -> &[u8] {
        self.key_at(charged.key)
    }

    /// Returns `true` if one of several requests that are decided together, by its index, matches the rule at an index of
    /// [`matched`](Self::matched).
    pub fn is_matched_by(&self, request: usize, index: usize) -> bool {
        match self.parts.get(request) {
            Some(part) => u32::try_from(index).is_ok_and(|index| part.matched.contains(&index)),
            None => !self.has_parts() && request == 0,
        }
    }

    /// Returns the rules that deny one of several requests that are decided together, regardless of their counts.
    pub fn denied_of(&self, request: usize) -> &[DeniedBy] {
        if !self.has_parts() && request == 0 {
            return &self.denied;
        }
        let from = |part: usize| self.parts.get(part).map_or(self.denied.len(), |part| part.denied_from as usize);
        self.denied.get(from(request)..from(request + 1)).unwrap_or_default()
    }

    /// Returns `true` if it has no matches.
    pub fn is_clear(&self) -> bool {
        self.matched.is_empty() && self.needs == Needs::default()
    }

    /// Returns `true` if a permit must be released when the request finishes.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.needs.has(Needs::RELEASE)
    }

    /// Returns the request's key for a rule.
    pub fn key(&self, matched: &MatchedRule) -> &[u8] {
        self.key_at(matched.key)
    }

    /// Returns the key at a position.
    pub fn key_at(&self, KeyRange(start, end): KeyRange) -> &[u8] {
        self.keys.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Clears the matches. The memory is kept, unless a request with very long keys made it large.
    #[inline]
    pub fn clear(&mut self) {
        self.matched.clear();
        self.keys.clear();
        if self.needs.has(Needs::LISTS) || self.keys.capacity() > LARGE {
            self.clear_lists();
        }
        self.needs = Needs::default();
    }

    #[cold]
    fn clear_lists(&mut self) {
        self.uncharged.clear();
        self.denied.clear();
        self.charged.clear();
        self.parts.clear();
        self.keys.shrink_to(LARGE);
    }

    /// Begins the next of several requests that are decided together.
    pub(super) fn begin_part(&mut self) {
        let denied_from = u32::try_from(self.denied.len()).unwrap_or(u32::MAX);
        self.needs = self.needs.and(Needs::PARTS);
        self.parts.push(PartMatches { denied_from, ..PartMatches::default() });
    }

    /// Adds a rule that counts the request, with what its limits need.
    #[inline]
    pub(super) fn add(&mut self, matched: MatchedRule, needs: Needs) {
        if self.has_parts() {
            return self.add_to_part(matched, needs);
        }
        self.add_first(matched, needs);
    }

    /// Returns `true` if several requests are decided together.
    #[inline]
    pub(super) fn has_parts(&self) -> bool {
        self.needs.has(Needs::PARTS)
    }

    /// Remembers that several requests are decided together, though it is not known any more which of them matched what.
    pub(super) fn keep_parts_of(&mut self, others: &Self) {
        self.needs = self.needs.and(Needs::PARTS.only_if(others.has_parts()));
    }

    /// Adds a rule that has not been added yet.
    #[inline]
    pub(super) fn add_first(&mut self, matched: MatchedRule, needs: Needs) {
        self.needs = self.needs.and(needs);
        self.matched.push(matched);
    }

    /// Adds a rule for the current one of several requests. A rule that matches several of them with the same key is
    /// charged once, at the highest cost.
    #[cold]
    fn add_to_part(&mut self, matched: MatchedRule, needs: Needs) {
        let same = |earlier: &MatchedRule| earlier.rule == matched.rule && self.key(earlier) == self.key(&matched);
        let known = self.matched.iter().position(same);
        let index = known.unwrap_or(self.matched.len());
        match self.matched.get_mut(index) {
            Some(earlier) => earlier.cost = earlier.cost.max(matched.cost),
            None => self.add_first(matched, needs),
        }
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        if let Some(part) = self.parts.last_mut()
            && !part.matched.contains(&index)
        {
            part.matched.push(index);
        }
    }

    /// Adds a rule that the request charges. The same rule and key are charged once, at the highest cost.
    pub(super) fn add_charge(&mut self, charge: ChargedRule) {
        let same = |earlier: &ChargedRule| {
            (earlier.rule, earlier.by) == (charge.rule, charge.by)
                && self.key_at(earlier.key) == self.key_at(charge.key)
        };
        match self.charged.iter().position(same) {
            Some(index) => self.charged[index].cost = self.charged[index].cost.max(charge.cost),
            None => {
                self.needs = self.needs.and(Needs::CHARGES);
                self.charged.push(charge);
            }
        }
    }

    /// Adds a rule for which the request is free so far.
    pub(super) fn add_free(&mut self, matched: MatchedRule, needs: Needs) {
        self.needs = self.needs.and(needs).and(Needs::UNCHARGED);
        self.uncharged.push(matched);
    }

    /// Adds a rule that denies the request regardless of its counts. Its key, as far as it is known, is the end of the
    /// keys, from `start`.
    pub(super) fn deny(&mut self, rule: u32, why: DenyReason, start: usize) {
        let key = KeyRange::new(start, self.keys.len());
        self.needs = self.needs.and(Needs::DENIAL);
        self.denied.push(DeniedBy { rule, why, key });
    }

    /// Denies the request by a rule that matches it, by its index in [`matched`](Self::matched), regardless of its counts.
    pub fn deny_matched(&mut self, index: usize, why: DenyReason) {
        if let Some(MatchedRule { rule, key, .. }) = self.matched.get(index) {
            self.needs = self.needs.and(Needs::DENIAL);
            self.denied.push(DeniedBy { rule: *rule, why, key: *key });
        }
    }
}
