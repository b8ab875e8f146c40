//! What the rules have found about one request.

use crate::key::KeyBytes;
use crate::rule::{CountedIn, Mode};
use diana_core::Cost;
use std::fmt;

/// The rules that a request is about, each with its key and its cost. Used again and again, it takes no new memory.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    applied: Vec<MatchedRule>,
    free: Vec<MatchedRule>,
    refused: Vec<RefusedBy>,
    pub(super) keys: KeyBytes,
    has_shadows: bool,
    is_held: bool,
}

/// A rule that a request is about.
#[derive(Clone, Debug)]
pub struct MatchedRule {
    /// The number of the rule.
    pub rule: u32,
    /// What the request costs.
    pub cost: Cost,
    /// Whether the rule refuses anybody.
    pub mode: Mode,
    /// Where its counts are.
    pub home: CountedIn,
    pub(super) limits: u32,
    pub(super) key: (u32, u32),
}

/// A rule that refuses the request whatever its counts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedBy {
    /// The number of the rule.
    pub rule: u32,
    /// Why it refuses.
    pub why: DenyReason,
}

/// Why a rule refuses a request whatever its counts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenyReason {
    /// It is in the rule's `deny`.
    Listed,
    /// It lacks what `by` asks for, and the rule says `missing: deny`.
    Missing,
    /// Its cost can't be computed: the expression failed, and the rule has no `cost_default`.
    Cost,
    /// The machine is busier than the rule's `load` allows, with this.
    Overloaded(Resource),
}

/// What a machine can have too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resource {
    /// Processors.
    Cpu,
    /// Memory.
    Memory,
    /// Open connections.
    Connections,
    /// Bytes that flow.
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
    /// The rules that the request is about, in the order of the file.
    pub fn applied(&self) -> &[MatchedRule] {
        &self.applied
    }

    /// The rules that are about the request and do not count it, since it costs nothing (`cost_min: 0`). They count it all the
    /// same once it turns out to have cost something. Their `cost` means nothing.
    pub fn free(&self) -> &[MatchedRule] {
        &self.free
    }

    /// The rules that refuse it whatever their counts are.
    pub fn refused(&self) -> &[RefusedBy] {
        &self.refused
    }

    /// Whether there are shadow rules among those that count it.
    pub fn has_shadows(&self) -> bool {
        self.has_shadows
    }

    /// Whether something of what is asked for must be given back when the request is done.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Whose request it is to a rule.
    pub fn key(&self, applied: &MatchedRule) -> &[u8] {
        self.keys.get(applied.key.0 as usize..applied.key.1 as usize).unwrap_or_default()
    }

    /// Empties it. Its memory stays, unless a request with monstrous keys made it large.
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

    /// Adds a rule to which it costs nothing so far.
    pub(super) fn add_free(&mut self, applied: MatchedRule) {
        self.free.push(applied);
    }

    /// Adds a rule that refuses it whatever its counts are.
    pub fn refuse(&mut self, rule: u32, why: DenyReason) {
        self.refused.push(RefusedBy { rule, why });
    }
}
