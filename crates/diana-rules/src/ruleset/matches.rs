//! The rules that match one request.

use crate::key::KeyBytes;
use crate::matching::index::Candidates;
use crate::rule::{CountByStatus, CountedIn, Mode, OnStatus};
use diana_core::Cost;
use smallvec::SmallVec;
use std::fmt;

/// The rules that match a request, each with its key and cost. Reuse it to avoid allocations.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    applied: Vec<MatchedRule>,
    free: Vec<MatchedRule>,
    refused: Vec<DeniedBy>,
    charged: Vec<ChargedRule>,
    /// If several requests are decided together: the matches of each.
    parts: Vec<PartMatches>,
    pub(super) keys: KeyBytes,
    /// The last simple key of the request: the number of its `by`, and its position.
    pub(super) last_key: Option<(u32, KeyRange)>,
    /// The rules that may match, while they are checked.
    pub(super) candidates: Candidates,
    has_shadows: bool,
    is_held: bool,
    /// Whether a rule counts by the status of the response.
    has_count: bool,
    /// Whether such a rule is charged only after the response.
    has_looks: bool,
    /// Whether `free`, `refused`, `charged` or `parts` may have entries, or a rule counts by status: those of
    /// most requests have none.
    has_others: bool,
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
    /// Whether it is charged, or the rule that charges it only counts requests.
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
    /// The rules that count the request, in the order of the file.
    pub fn matched(&self) -> &[MatchedRule] {
        &self.applied
    }

    /// Returns `true` if the request needs more than the answers of enforced limits: a rule denies it regardless of its
    /// counts, charges another rule, is charged after the response, or is a shadow rule; or no rule counts it.
    #[inline]
    pub fn needs_more_steps(&self) -> bool {
        let has_others = self.has_others && (self.has_looks || !(self.refused.is_empty() && self.charged.is_empty()));
        has_others || self.has_shadows || self.applied.is_empty()
    }

    /// The rules that match the request but do not count it, since it costs 0 (`cost_min: 0`). They charge it if its
    /// actual cost turns out to be higher. Their `cost` is meaningless.
    pub fn uncharged(&self) -> &[MatchedRule] {
        &self.free
    }

    /// The rules that deny the request regardless of their counts.
    pub fn denied(&self) -> &[DeniedBy] {
        &self.refused
    }

    /// The rules that the request charges.
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
            None => self.parts.is_empty() && request == 0,
        }
    }

    /// Returns the rules that deny one of several requests that are decided together, regardless of their counts.
    pub fn denied_of(&self, request: usize) -> &[DeniedBy] {
        if self.parts.is_empty() && request == 0 {
            return &self.refused;
        }
        let from = |part: usize| self.parts.get(part).map_or(self.refused.len(), |part| part.denied_from as usize);
        self.refused.get(from(request)..from(request + 1)).unwrap_or_default()
    }

    /// Returns `true` if it has no matches.
    pub fn is_clear(&self) -> bool {
        self.applied.is_empty() && !self.has_others
    }

    /// Returns `true` if a shadow rule counts the request.
    pub fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// Returns `true` if a permit must be released when the request finishes.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns `true` if a rule counts the request by the status of its response (`count`).
    #[inline]
    pub fn has_count(&self) -> bool {
        self.has_count
    }

    /// Returns `true` if a rule is charged only [after the response](ChargedAt::Response).
    #[inline]
    pub fn has_looks(&self) -> bool {
        self.has_looks
    }

    /// Returns the request's key for a rule.
    pub fn key(&self, applied: &MatchedRule) -> &[u8] {
        self.key_at(applied.key)
    }

    /// Returns the key at a position.
    pub fn key_at(&self, KeyRange(start, end): KeyRange) -> &[u8] {
        self.keys.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Clears the matches. The memory is kept, unless a request with very long keys made it large.
    #[inline]
    pub fn clear(&mut self) {
        self.applied.clear();
        self.keys.clear();
        self.has_shadows = false;
        self.is_held = false;
        if self.has_others || self.keys.capacity() > LARGE {
            self.clear_others();
        }
    }

    #[cold]
    fn clear_others(&mut self) {
        self.free.clear();
        self.refused.clear();
        self.charged.clear();
        self.parts.clear();
        (self.has_count, self.has_looks) = (false, false);
        self.has_others = false;
        self.keys.shrink_to(LARGE);
    }

    /// Begins the next of several requests that are decided together.
    pub(super) fn begin_part(&mut self) {
        let denied_from = u32::try_from(self.refused.len()).unwrap_or(u32::MAX);
        self.has_others = true;
        self.parts.push(PartMatches { denied_from, ..PartMatches::default() });
    }

    #[inline]
    pub(super) fn add(&mut self, applied: MatchedRule, is_held: bool) {
        if !self.parts.is_empty() {
            return self.add_to_part(applied, is_held);
        }
        self.add_first(applied, is_held);
    }

    /// Returns `true` if several requests are decided together.
    pub(super) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Adds a rule that has not been added yet.
    #[inline]
    pub(super) fn add_first(&mut self, applied: MatchedRule, is_held: bool) {
        self.is_held |= is_held;
        self.has_shadows |= applied.mode == Mode::Shadow;
        self.applied.push(applied);
    }

    /// Adds a rule for the current one of several requests. A rule that matches several of them with the same key is
    /// charged once, at the highest cost.
    #[cold]
    fn add_to_part(&mut self, applied: MatchedRule, is_held: bool) {
        let same = |earlier: &MatchedRule| earlier.rule == applied.rule && self.key(earlier) == self.key(&applied);
        let known = self.applied.iter().position(same);
        let index = known.unwrap_or(self.applied.len());
        match self.applied.get_mut(index) {
            Some(earlier) => earlier.cost = earlier.cost.max(applied.cost),
            None => self.add_first(applied, is_held),
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
                self.has_others = true;
                self.charged.push(charge);
            }
        }
    }

    /// Records that a rule counts by the status of the response.
    pub(super) fn set_count(&mut self, charged_at: ChargedAt) {
        self.has_others = true;
        self.has_count = true;
        self.has_looks |= charged_at == ChargedAt::Response;
    }

    /// Adds a rule for which the request is free so far.
    pub(super) fn add_free(&mut self, applied: MatchedRule) {
        self.has_others = true;
        self.free.push(applied);
    }

    /// Adds a rule that denies the request regardless of its counts. Its key, as far as it is known, is the end of the
    /// keys, from `start`.
    pub(super) fn deny(&mut self, rule: u32, why: DenyReason, start: usize) {
        let key = KeyRange::new(start, self.keys.len());
        self.has_others = true;
        self.refused.push(DeniedBy { rule, why, key });
    }

    /// Denies the request by a rule that matches it, by its index in [`matched`](Self::matched), regardless of its counts.
    pub fn deny_matched(&mut self, index: usize, why: DenyReason) {
        if let Some(MatchedRule { rule, key, .. }) = self.applied.get(index) {
            self.has_others = true;
            self.refused.push(DeniedBy { rule: *rule, why, key: *key });
        }
    }
}
