//! What a site has found in the limits that are installed, held until others are.
//!
//! Most programs install once, before any call. So what is found first has a place of its own, where looking at it costs next to
//! nothing; it is kept for as long as the program runs, used or not. What is found after another install is swapped.

use crate::limited::installed::{find, installs, installs_for_all, of_task};
use crate::limited::{Cause, Limits};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, OnceLock};

/// What a site has found, if it has been called yet.
#[derive(Debug)]
pub(super) struct Cache<L> {
    first: OnceLock<Cached<L>>,
    later: ArcSwapOption<Cached<L>>,
}

#[derive(Debug)]
struct Cached<L> {
    /// How often something was installed when it was found.
    installs: u64,
    what: L,
}

impl<L: Clone> Cache<L> {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new(), later: ArcSwapOption::const_empty() }
    }

    /// Asks what was found; if something was installed since, it is looked up with `look_up` first.
    #[inline]
    pub(super) fn ask<R>(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
        ask: impl FnOnce(&L) -> R,
    ) -> Result<R, Cause> {
        match self.first.get() {
            Some(held) if held.installs == installs() => Ok(ask(&held.what)),
            _ => self.later(instance, look_up).map(|what| ask(&what)),
        }
    }

    #[cold]
    fn later(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
    ) -> Result<L, Cause> {
        if let Some(own) = of_task() {
            return look_up(&own);
        }
        let now = installs_for_all();
        if let Some(held) = self.first.get().filter(|held| held.installs == now) {
            return Ok(held.what.clone());
        }
        if let Some(held) = &*self.later.load()
            && held.installs == now
        {
            return Ok(held.what.clone());
        }
        let (limits, installs) = find(instance).ok_or(Cause::NotInstalled { instance })?;
        let what = look_up(&limits)?;
        // Two calls may do so at once, after two installs even: whichever is held, the next call compares the number.
        if let Err(held) = self.first.set(Cached { installs, what: what.clone() }) {
            self.later.store(Some(Arc::new(held)));
        }
        Ok(what)
    }
}
