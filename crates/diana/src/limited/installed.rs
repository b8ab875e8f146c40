//! What is installed: one for the program, others by name for those attributes that ask for them with `in`, and for a while one
//! for a task alone.
//!
//! Sites remember what they found, so each install raises a number that they compare with. The first time that a task has limits of
//! its own, the number gets a mark that it keeps: from then on no site goes by what it remembers without looking at its task. So
//! programs in which no task ever has, and those are all but tests, pay nothing for it.

use super::Limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

struct Installed {
    main: Option<Limits>,
    named: BTreeMap<Box<str>, Limits>,
}

static INSTALLED: Mutex<Installed> = Mutex::new(Installed { main: None, named: BTreeMap::new() });
/// How often something was installed; 0 before the first time. Changed only while `INSTALLED` is locked.
static INSTALLS: AtomicU64 = AtomicU64::new(0);
/// The mark: a task has had limits of its own.
const SCOPED: u64 = 1 << 63;

tokio::task_local! {
    static OWN: Limits;
}

/// Installs limits, by this name or for the program, in place of those before.
pub(super) fn install(name: Option<&str>, limits: Limits) {
    let mut installed = INSTALLED.lock();
    match name {
        Some(name) => drop(installed.named.insert(name.into(), limits)),
        None => installed.main = Some(limits),
    }
    INSTALLS.fetch_add(1, Ordering::Release);
}

/// Runs plain code with limits of its own.
pub(super) fn enter<R>(limits: Limits, run: impl FnOnce() -> R) -> R {
    INSTALLS.fetch_or(SCOPED, Ordering::Release);
    OWN.sync_scope(limits, run)
}

/// Runs a future with limits of its own.
pub(super) fn scope<F: Future>(limits: Limits, future: F) -> impl Future<Output = F::Output> {
    INSTALLS.fetch_or(SCOPED, Ordering::Release);
    OWN.scope(limits, future)
}

/// The limits of this task alone, if it has any.
pub(super) fn of_task() -> Option<Limits> {
    let may_have = INSTALLS.load(Ordering::Acquire) & SCOPED != 0;
    may_have.then(|| OWN.try_with(Clone::clone).ok()).flatten()
}

/// How often something was installed; a number that nothing was found at, once a task has had limits of its own.
#[inline]
pub(super) fn installs() -> u64 {
    INSTALLS.load(Ordering::Acquire)
}

/// How often something was installed, whatever tasks have.
pub(super) fn installs_for_all() -> u64 {
    installs() & !SCOPED
}

/// The limits that are installed, by this name or for the program, and how often something was installed till then.
pub(super) fn find(name: Option<&str>) -> Option<(Limits, u64)> {
    let installed = INSTALLED.lock();
    let limits = match name {
        Some(name) => installed.named.get(name),
        None => installed.main.as_ref(),
    };
    limits.map(|limits| (limits.clone(), installs_for_all()))
}
