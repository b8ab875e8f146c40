//! Which versions of its limits a store has seen, and when they changed.
//!
//! Each shard has a table for each limit, which it begins or changes when it is next asked. So that all of them agree on when
//! a limit changed, also those that had no key of it yet, the first that sees a new version writes it down here.
//!
//! It matters in the very microsecond of a change only, and only to Guava's limiters
//! ([`carries_fresh`](crate::Algorithm::carries_fresh)): so only the changes of one microsecond are kept.

use crate::sync::Mutex;
use crate::{Limit, LimitId, Timestamp};
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;

/// The most changes of one microsecond that are told apart.
const MOST: usize = 4;

/// The changes that lead to a version of a limit: each what it changed to, and when.
pub(super) type Path = SmallVec<[(Limit, Timestamp); 1]>;

/// What a store has seen of its limits.
#[derive(Debug, Default)]
pub(super) struct Changes {
    limits: Mutex<HashMap<LimitId, Seen>>,
}

/// What a store has seen of one limit.
#[derive(Debug)]
struct Seen {
    newest: Limit,
    /// What it was before the changes of the last microsecond in which it changed, each with when it ceased to be so.
    before: SmallVec<[(Limit, Timestamp); 1]>,
}

impl Changes {
    /// How a table begins that is asked for `limit` at `now`: as what, and what it then changes to.
    pub(super) fn begin(&self, limit: &Limit, now: Timestamp) -> (Limit, Path) {
        let mut limits = self.limits.lock();
        let seen = limits.entry(limit.id()).or_insert_with(|| Seen::new(limit));
        seen.see(limit, now);
        match seen.before.first() {
            Some((first, at)) if seen.newest.version() == limit.version() && at.as_micros() == now.as_micros() => {
                (first.clone(), seen.path(first.version()))
            }
            _ => (limit.clone(), Path::new()),
        }
    }

    /// The changes over which a table of `version` comes to `limit`, which is newer.
    pub(super) fn since(&self, version: u64, limit: &Limit, now: Timestamp) -> Path {
        let mut limits = self.limits.lock();
        let seen = limits.entry(limit.id()).or_insert_with(|| Seen::new(limit));
        seen.see(limit, now);
        match seen.path(version) {
            path if path.last().is_some_and(|(last, _)| last.version() == limit.version()) => path,
            // It has gone on since, or the changes were too many.
            _ => smallvec![(limit.clone(), now)],
        }
    }

    /// Forgets a limit.
    pub(super) fn forget(&self, limit: LimitId) {
        self.limits.lock().remove(&limit);
    }
}

impl Seen {
    fn new(limit: &Limit) -> Self {
        Self { newest: limit.clone(), before: SmallVec::new() }
    }

    /// Writes down that `limit` was seen at `now`.
    fn see(&mut self, limit: &Limit, now: Timestamp) {
        if limit.version() <= self.newest.version() {
            return;
        }
        if self.before.last().is_some_and(|(_, at)| at.as_micros() != now.as_micros()) || self.before.len() >= MOST {
            self.before.clear();
        }
        self.before.push((std::mem::replace(&mut self.newest, limit.clone()), now));
    }

    /// The changes to versions that are newer than `version`.
    fn path(&self, version: u64) -> Path {
        let became = self.before.iter().skip(1).map(|(limit, _)| limit).chain([&self.newest]);
        let changes = became.zip(&self.before).map(|(limit, (_, at))| (limit.clone(), *at));
        changes.filter(|(limit, _)| limit.version() > version).collect()
    }
}
