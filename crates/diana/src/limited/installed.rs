//! What is installed: one for the program, and others by name for those attributes that ask for them with `in`.
//!
//! Sites remember what they found, so each install raises a number that they compare with.

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

/// Installs limits, by this name or for the program, in place of those before.
pub(super) fn install(name: Option<&str>, limits: Limits) {
    let mut installed = INSTALLED.lock();
    match name {
        Some(name) => drop(installed.named.insert(name.into(), limits)),
        None => installed.main = Some(limits),
    }
    INSTALLS.fetch_add(1, Ordering::Release);
}

/// How often something was installed.
#[inline]
pub(super) fn installs() -> u64 {
    INSTALLS.load(Ordering::Acquire)
}

/// The limits that are installed, by this name or for the program, and how often something was installed till then.
pub(super) fn find(name: Option<&str>) -> Option<(Limits, u64)> {
    let installed = INSTALLED.lock();
    let limits = match name {
        Some(name) => installed.named.get(name),
        None => installed.main.as_ref(),
    };
    limits.map(|limits| (limits.clone(), installs()))
}
