//! What a site has found in the limits that are installed, held until others are.

use crate::limited::installed::{find, installs};
use crate::limited::{Cause, Limits};
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// What a site has found, if it has been called yet.
#[derive(Debug)]
pub(super) struct Found<L> {
    held: ArcSwapOption<Held<L>>,
}

#[derive(Debug)]
struct Held<L> {
    /// How often something was installed when it was found.
    installs: u64,
    what: L,
}

impl<L> Found<L> {
    pub(super) const fn new() -> Self {
        Self { held: ArcSwapOption::const_empty() }
    }

    /// Asks what was found; if something was installed since, it is looked up with `look_up` first.
    #[inline]
    pub(super) fn ask<R>(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
        ask: impl FnOnce(&L) -> R,
    ) -> Result<R, Cause> {
        let held = self.held.load();
        match &*held {
            Some(held) if held.installs == installs() => Ok(ask(&held.what)),
            _ => self.find(instance, look_up).map(|held| ask(&held.what)),
        }
    }

    #[cold]
    fn find(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
    ) -> Result<Arc<Held<L>>, Cause> {
        let (limits, installs) = find(instance).ok_or(Cause::NotInstalled { instance })?;
        let held = Arc::new(Held { installs, what: look_up(&limits)? });
        // Two calls may do so at once, after two installs even: whichever is held, the next call compares the number.
        self.held.store(Some(Arc::clone(&held)));
        Ok(held)
    }
}
