//! Caches a call site's lookup in the installed limits, until the next install.
//!
//! Most programs install once, before any call. So the first lookup has its own field, which is cheap to read; it is
//! stored for the life of the program, used or not. Lookups after another install are swapped.

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
    value: L,
}

impl<L: Clone> Cache<L> {
    pub(super) const fn new() -> Self {
        Self { first: OnceLock::new(), later: ArcSwapOption::const_empty() }
    }

    /// Passes the cached value to `then`; if there was an install since, calls `look_up` first.
    #[inline]
    pub(super) fn with<R>(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
        then: impl FnOnce(&L) -> R,
    ) -> Result<R, Cause> {
        match self.first.get() {
            Some(cached) if cached.installs == installs() => Ok(then(&cached.value)),
            _ => self.get_or_look_up(instance, look_up).map(|value| then(&value)),
        }
    }

    #[cold]
    fn get_or_look_up(
        &self,
        instance: Option<&'static str>,
        look_up: impl FnOnce(&Limits) -> Result<L, Cause>,
    ) -> Result<L, Cause> {
        if let Some(limits) = of_task() {
            return look_up(&limits);
        }
        let now = installs_for_all();
        if let Some(cached) = self.first.get().filter(|cached| cached.installs == now) {
            return Ok(cached.value.clone());
        }
        if let Some(cached) = &*self.later.load()
            && cached.installs == now
        {
            return Ok(cached.value.clone());
        }
        let (limits, installs) = find(instance).ok_or(Cause::NotInstalled { instance, rule: None })?;
        let value = look_up(&limits)?;
        // Two calls may race, even after two installs: whichever value is cached, the next call compares the number.
        if let Err(cached) = self.first.set(Cached { installs, value: value.clone() }) {
            self.later.store(Some(Arc::new(cached)));
        }
        Ok(value)
    }
}
