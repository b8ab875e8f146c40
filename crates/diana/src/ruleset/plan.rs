//! How a request is decided: what each rule needs is compiled with it, and joined over the rules that match, so that the engine
//! chooses once between a single limit, several, and all steps.

use super::matches::Matches;

/// The set of what a decision needs besides limits of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u16);

impl Needs {
    /// Other than one limit.
    pub const NOT_ONE_LIMIT: Self = Self(1);
    /// Limits with a queue of requests that wait.
    pub const QUEUES: Self = Self(1 << 1);
    /// Limits whose reservations are bounded.
    pub const RESERVATIONS: Self = Self(1 << 2);
    /// Limits in the shared store.
    pub const SHARED: Self = Self(1 << 3);
    /// A shadow rule.
    pub const SHADOW: Self = Self(1 << 4);
    /// A rule that depends on the load of the machine.
    pub const LOAD: Self = Self(1 << 5);
    /// A rule that counts by the status of the response (`count`).
    pub const STATUS: Self = Self(1 << 6);
    /// A rule that is charged only [after the response](super::ChargedAt::Response).
    pub const LOOK: Self = Self(1 << 7);
    /// A permit that must be released when the request finishes.
    pub const RELEASE: Self = Self(1 << 8);
    /// A denial regardless of counts.
    pub const DENIAL: Self = Self(1 << 9);
    /// A rule that charges another one.
    pub const CHARGES: Self = Self(1 << 10);
    /// A rule that matches, but costs nothing.
    pub const UNCHARGED: Self = Self(1 << 11);
    /// Several requests that are decided together.
    pub const PARTS: Self = Self(1 << 12);

    /// Needs that take more steps than asking limits of this process, in any state of the engine.
    const STEPS: Self = Self(Self::SHADOW.0 | Self::LOAD.0 | Self::LOOK.0 | Self::DENIAL.0 | Self::CHARGES.0);
    /// Needs with entries in lists that most requests leave empty.
    pub(super) const LISTS: Self = Self(Self::DENIAL.0 | Self::CHARGES.0 | Self::UNCHARGED.0 | Self::PARTS.0);

    /// Returns `true` if it has one of `others`.
    #[inline]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns both.
    #[inline]
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set if `is_needed`, else the empty one.
    #[inline]
    #[must_use]
    pub const fn only_if(self, is_needed: bool) -> Self {
        if is_needed { self } else { Self(0) }
    }
}

/// How a request is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The request is granted: no rule counts it.
    Nothing,
    /// One limit of this process decides.
    OneLimit,
    /// Several limits of this process decide, all or nothing.
    Limits,
    /// Several steps decide: the shared store, queues, shadow rules.
    Steps,
}

impl Matches {
    /// Returns how the request is decided. `also` are the needs that take more steps in this engine: [`Needs::SHARED`] if it has
    /// a shared store, [`Needs::QUEUES`] if requests wait.
    #[inline]
    pub fn plan(&self, also: Needs) -> Plan {
        if self.needs().has(Needs::STEPS.and(also)) {
            return Plan::Steps;
        }
        match self.matched() {
            [] => Plan::Nothing,
            [_] if !self.needs().has(Needs::NOT_ONE_LIMIT) => Plan::OneLimit,
            _ => Plan::Limits,
        }
    }
}
