//! The properties of an algorithm, besides how it decides. Headers, descriptions, warnings and corrections of a cost are
//! derived from them, and depend on no algorithm.

use crate::Quota;
use std::time::Duration;

/// The properties of an algorithm with its parameters. By default, nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Properties<'a> {
    /// How used permits become available again.
    pub restores: Restores<'a>,
    /// Whether it delays requests by itself, up to a queue of its own: a caller waits for it without a maximum wait.
    pub delays: bool,
    /// Whether up to twice the limit may pass across the edge of a window, which another algorithm avoids. (Nothing else
    /// follows a calendar.)
    pub doubles_at_edges: bool,
    /// The most entries in the state of a key, if it stores requests one by one.
    pub max_entries: Option<u64>,
    /// Whether it uses the [results of responses](crate::Algorithm::observe).
    pub learns: bool,
}

/// How used permits become available again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Restores<'a> {
    /// Permits return in another way.
    #[default]
    Otherwise,
    /// Permits return one by one, at a rate.
    Continuously(Quota),
    /// The permits of a whole period return at once.
    InSteps(Quota),
    /// Permits return one by one, at this number per second.
    AtRate(f64),
    /// Permits return when they leave the window. Several windows all apply.
    InWindows(&'a [Quota]),
    /// A grant is possible this long after the last one, regardless of its cost.
    AfterInterval(Duration),
    /// Permits return when the requests that use them have finished.
    WhenReleased {
        /// The permits that may be in use before requests are delayed or denied.
        limit: u64,
    },
    /// Permits return only by a reset.
    Never,
}

impl Properties<'_> {
    /// Returns the quota of the limit; `None` if it has none, or several.
    pub fn quota(&self) -> Option<Quota> {
        match self.restores {
            Restores::Continuously(quota) | Restores::InSteps(quota) | Restores::InWindows(&[quota]) => Some(quota),
            Restores::AfterInterval(interval) => Quota::new(1, interval).ok(),
            _ => None,
        }
    }

    /// Returns the rate of the limit in permits per second; `None` if it has none, or several.
    pub fn rate(&self) -> Option<f64> {
        match self.restores {
            Restores::AtRate(rate) => Some(rate),
            _ => self.quota().map(|quota| quota.rate()),
        }
    }

    /// Returns `true` if permits must be released.
    pub fn is_released(&self) -> bool {
        matches!(self.restores, Restores::WhenReleased { .. })
    }
}

impl<'a> From<Restores<'a>> for Properties<'a> {
    fn from(restores: Restores<'a>) -> Self {
        Self { restores, ..Self::default() }
    }
}
