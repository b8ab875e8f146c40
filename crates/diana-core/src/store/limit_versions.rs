//! The versions of its limits that a store has seen, and when they changed.
//!
//! Each shard has a table for each limit, which it creates or changes at its next ask. So that all shards agree on when
//! a limit changed, including those without a key of it, the first that sees a new version records it in this module.
//!
//! The time matters only within the microsecond of a change, and only to Guava's limiters
//! ([`migrates_fresh`](crate::Algorithm::migrates_fresh)), so only the changes of one microsecond are kept.

use crate::sync::Mutex;
use crate::{Limit, LimitId, Timestamp};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// The maximum number of changes that are distinguished within one microsecond.
const MAX_CHANGES: usize = 4;

/// The changes that lead to a version of a limit: each with its new version and its time.
pub(super) type Path = SmallVec<[(Limit, Timestamp); 1]>;

/// The versions of all limits that a store has seen.
#[derive(Debug, Default)]
pub(super) struct Changes {
    limits: Mutex<HashMap<LimitId, Versions>>,
}

/// The versions of one limit that a store has seen.
#[derive(Debug)]
struct Versions {
    newest: Limit,
    /// The versions before the changes of the last microsecond with a change, each with when it was replaced.
    before: SmallVec<[(Limit, Timestamp); 1]>,
}

impl Changes {
    /// Returns the version with which a new table for `limit` starts at `now`, and the changes to apply to it.
    pub(super) fn begin(&self, limit: &Limit, now: Timestamp) -> (Limit, Path) {
        let mut limits = self.limits.lock();
        let versions = limits.entry(limit.id()).or_insert_with(|| Versions::new(limit));
        versions.record(limit, now);
        match versions.before.first() {
            Some((first, at)) if versions.newest.version() == limit.version() && at.as_micros() == now.as_micros() => {
                (first.clone(), versions.path(first.version()))
            }
            _ => (limit.clone(), Path::new()),
        }
    }

    /// Returns the changes from `version` of a table to `limit`, which is newer.
    pub(super) fn since(&self, version: u64, limit: &Limit, now: Timestamp) -> Path {
        let mut limits = self.limits.lock();
        let versions = limits.entry(limit.id()).or_insert_with(|| Versions::new(limit));
        versions.record(limit, now);
        match versions.path(version) {
            path if path.last().is_some_and(|(last, _)| last.version() == limit.version()) => path,
            // The limit has changed again since, or there were too many changes.
            _ => smallvec![(limit.clone(), now)],
        }
    }

    /// Drops a limit.
    pub(super) fn forget(&self, limit: LimitId) {
        self.limits.lock().remove(&limit);
    }
}

impl Versions {
    fn new(limit: &Limit) -> Self {
        Self { newest: limit.clone(), before: SmallVec::new() }
    }

    /// Records that `limit` was seen at `now`.
    fn record(&mut self, limit: &Limit, now: Timestamp) {
        if limit.version() <= self.newest.version() {
            return;
        }
        if self.before.last().is_some_and(|(_, at)| at.as_micros() != now.as_micros())
            || self.before.len() >= MAX_CHANGES
        {
            self.before.clear();
        }
        self.before.push((std::mem::replace(&mut self.newest, limit.clone()), now));
    }

    /// Returns the changes to versions that are newer than `version`.
    fn path(&self, version: u64) -> Path {
        let new_versions = self.before.iter().skip(1).map(|(limit, _)| limit).chain([&self.newest]);
        let changes = new_versions.zip(&self.before).map(|(limit, (_, at))| (limit.clone(), *at));
        changes.filter(|(limit, _)| limit.version() > version).collect()
    }
}
