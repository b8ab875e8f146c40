//! The rules that match one request.

use crate::key::KeyBytes;
use crate::rule::{CountedIn, Mode};
use diana_core::Cost;
use std::fmt;

/// The rules that match a request, each with its key and cost. Reuse it to avoid allocations.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    applied: Vec<MatchedRule>,
    free: Vec<MatchedRule>,
    refused: Vec<DeniedBy>,
    pub(super) keys: KeyBytes,
    has_shadows: bool,
    is_held: bool,
}

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
    pub(super) limits: u32,
    pub(super) key: (u32, u32),
}

/// A rule that denies the request regardless of its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeniedBy {
    /// The index of the rule.
    pub rule: u32,
    /// The reason.
    pub why: DenyReason,
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

    /// The rules that match the request but do not count it, since it costs 0 (`cost_min: 0`). They charge it if its
    /// actual cost turns out to be higher. Their `cost` is meaningless.
    pub fn uncharged(&self) -> &[MatchedRule] {
        &self.free
    }

    /// The rules that deny the request regardless of their counts.
    pub fn denied(&self) -> &[DeniedBy] {
        &self.refused
    }

    /// Returns `true` if a shadow rule counts the request.
    pub fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// Returns `true` if a permit must be released when the request finishes.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Returns the request's key for a rule.
    pub fn key(&self, applied: &MatchedRule) -> &[u8] {
        self.keys.get(applied.key.0 as usize..applied.key.1 as usize).unwrap_or_default()
    }

    /// Clears the matches. The memory is kept, unless a request with very long keys made it large.
    pub fn clear(&mut self) {
        const LARGE: usize = 4 << 10;
        self.applied.clear();
        self.free.clear();
        self.refused.clear();
        self.keys.clear();
        if self.keys.capacity() > LARGE {
            self.keys.shrink_to(LARGE);
        }
        self.has_shadows = false;
        self.is_held = false;
    }

    pub(super) fn add(&mut self, applied: MatchedRule, is_held: bool) {
        self.is_held |= is_held;
        self.has_shadows |= applied.mode == Mode::Shadow;
        self.applied.push(applied);
    }

    /// Adds a rule for which the request is free so far.
    pub(super) fn add_free(&mut self, applied: MatchedRule) {
        self.free.push(applied);
    }

    /// Adds a rule that denies the request regardless of its counts.
    pub fn deny(&mut self, rule: u32, why: DenyReason) {
        self.refused.push(DeniedBy { rule, why });
    }
}
