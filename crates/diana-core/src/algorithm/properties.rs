//! What an algorithm tells about itself, besides how it decides: headers, descriptions, warnings and corrections of a cost
//! are derived from it, so none of them knows the algorithms.

use crate::Quota;
use std::time::Duration;

/// The properties of an algorithm with its parameters. By default, nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Properties<'a> {
    /// How used permits become available again.
    pub restores: Restores<'a>,
    /// Whether it delays requests by itself, up to a queue of its own: a caller waits for it without a maximum wait.
    pub delays: bool,
    /// Whether up to twice the limit may pass across the edge of a window.
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
    /// In a way that is not one of the others.
    #[default]
    Otherwise,
    /// One by one, at a rate.
    Continuously(Quota),
    /// Those of a whole period at once.
    InSteps(Quota),
    /// One by one, at this number of permits per second.
    AtRate(f64),
    /// When they leave the window. Several windows all apply.
    InWindows(&'a [Quota]),
    /// This long after each grant, whatever its cost.
    AfterInterval(Duration),
    /// When the requests that use them have finished.
    WhenReleased {
        /// The permits that may be in use before requests are delayed or denied.
        limit: u64,
    },
    /// Only by a reset.
    Never,
}

impl Properties<'_> {
    /// The quota of the limit; `None` if it has none, or several.
    pub fn quota(&self) -> Option<Quota> {
        match self.restores {
            Restores::Continuously(quota) | Restores::InSteps(quota) | Restores::InWindows(&[quota]) => Some(quota),
            Restores::AfterInterval(interval) => Quota::new(1, interval).ok(),
            _ => None,
        }
    }

    /// The rate of the limit in permits per second; `None` if it has none, or several.
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
