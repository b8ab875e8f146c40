//! Caches a call site's lookup in the installed limits, until the next install.
//!
//! Most programs install once, before any call. So the first lookup has its own field, which is cheap to read; it is
//! kept for the life of the program, used or not. Lookups after another install are swapped.

use crate::limited::installed::{find, installs, installs_for_all, of_task};
use crate::limited::{Cause, Limits};
use arc_swap::ArcSwapOption;
use std::sync::{Arc, OnceLock};

/// The cached lookup of a call site, if it was called yet.
#[derive(Debug)]
pub(super) struct Cache<L> {
    first: OnceLock<Cached<L>>,
    later: ArcSwapOption<Cached<L>>,
}

#[derive(Debug)]
struct Cached<L> {
    /// The number of installs at the time of the lookup.
    installs: u64,
    what: L,
}

impl<L: Clone> Cache<L> {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new(), later: ArcSwapOption::const_empty() }
    }

    /// Passes the cached value to `ask`; if there was an install since, calls `look_up` first.
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
        // Two calls may race, even after two installs: whichever value is cached, the next call compares the number.
        if let Err(held) = self.first.set(Cached { installs, what: what.clone() }) {
            self.later.store(Some(Arc::new(held)));
        }
        Ok(what)
    }
}
