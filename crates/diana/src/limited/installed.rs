//! The installed limits: a default for the program, named instances for attributes with `in`, and overrides for a
//! single task.
//!
//! Call sites cache their lookup, so each install increments a number that they compare. The first override for a task
//! sets a flag in the number for good: from then on no call site uses its cache without checking its task. So programs
//! without overrides, which are all but tests, pay nothing for them.

use super::Limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

struct Installed {
    main: Option<Limits>,
    named: BTreeMap<Box<str>, Limits>,
}

static INSTALLED: Mutex<Installed> = Mutex::new(Installed { main: None, named: BTreeMap::new() });
/// The number of installs; 0 before the first. Changed only while `INSTALLED` is locked.
static INSTALLS: AtomicU64 = AtomicU64::new(0);
/// The flag: a task has had an override.
const SCOPED: u64 = 1 << 63;

tokio::task_local! {
    static TASK_LIMITS: Limits;
}

/// Installs limits, by this name or as the default, replacing the previous ones.
pub(super) fn install(name: Option<&str>, limits: Limits) {
    let mut installed = INSTALLED.lock();
    match name {
        Some(name) => drop(installed.named.insert(name.into(), limits)),
        None => installed.main = Some(limits),
    }
    INSTALLS.fetch_add(1, Ordering::Release);
}

/// Runs synchronous code with its own limits.
pub(super) fn enter<R>(limits: Limits, run: impl FnOnce() -> R) -> R {
    INSTALLS.fetch_or(SCOPED, Ordering::Release);
    TASK_LIMITS.sync_scope(limits, run)
}

/// Runs a future with its own limits.
pub(super) fn scope<F: Future>(limits: Limits, future: F) -> impl Future<Output = F::Output> {
    INSTALLS.fetch_or(SCOPED, Ordering::Release);
    TASK_LIMITS.scope(limits, future)
}

/// Returns the override of this task, if it has one.
pub(super) fn of_task() -> Option<Limits> {
    let may_have = INSTALLS.load(Ordering::Acquire) & SCOPED != 0;
    may_have.then(|| TASK_LIMITS.try_with(Clone::clone).ok()).flatten()
}

/// Returns the number of installs; a number that no cache has, once a task has had an override.
#[inline]
pub(super) fn installs() -> u64 {
    INSTALLS.load(Ordering::Acquire)
}

/// Returns the number of installs, regardless of overrides.
pub(super) fn installs_for_all() -> u64 {
    installs() & !SCOPED
}

/// Returns the installed limits, by this name or the default, and the number of installs at that time.
pub(super) fn find(name: Option<&str>) -> Option<(Limits, u64)> {
    let installed = INSTALLED.lock();
    let limits = match name {
        Some(name) => installed.named.get(name),
        None => installed.main.as_ref(),
    };
    limits.map(|limits| (limits.clone(), installs_for_all()))
}
