//! How each limit is kept: its newest version, as far as this process knows, and since when.
//!
//! # Which parameters count
//! A limit's states carry the parameters under which they were written. Whoever finds others than its own carries the
//! state over. But which ones are newer? While a new configuration is rolled out, some gateways still have the old one;
//! if each carried every key over to its own, back and forth, what is clamped on the way would be lost each time. So a
//! state also carries since when its parameters are in force, and the newer ones count: who finds newer ones than its
//! own goes by those.

use crate::kept::AnyKept;
use crate::key::KeySpace;
use crate::kind;
use diana_core::{Limit, LimitId, StoreError, Timestamp};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// By how much the clocks of two who share a limit may differ.
const FUTURE: Duration = Duration::from_secs(60);

/// How one version of a limit is kept.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) limit: Limit,
    pub(crate) kept: Arc<dyn AnyKept>,
    pub(crate) keys: KeySpace,
    /// When these parameters came into force, in milliseconds since 1970: as text, to base 36.
    pub(crate) since: String,
    since_millis: u64,
}

impl Plan {
    /// The same limit's plan under parameters that were found on Redis.
    pub(crate) fn as_written(&self, kept: &Arc<dyn AnyKept>, since: &str) -> Self {
        let (limit, keys, kept) = (self.limit.clone(), self.keys.clone(), Arc::clone(kept));
        let since_millis = u64::from_str_radix(since, 36).unwrap_or(0);
        Self { limit, kept, keys, since: since.to_owned(), since_millis }
    }
}

/// The plans of all limits that were seen.
#[derive(Debug)]
pub(crate) struct Plans {
    prefix: String,
    newest: RwLock<HashMap<LimitId, Arc<Plan>>>,
}

impl Plans {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned(), newest: RwLock::default() }
    }

    /// The plan for `limit`, or for a newer version of it.
    pub(crate) fn find(&self, limit: &Limit, now: impl FnOnce() -> Timestamp) -> Result<Arc<Plan>, StoreError> {
        match self.newest.read().get(&limit.id()) {
            Some(plan) if plan.limit.version() >= limit.version() => return Ok(Arc::clone(plan)),
            _ => {}
        }
        let kept = kind::kept(limit).map_err(|reason| StoreError::Unsupported {
            store: "redis".to_owned(),
            limit: limit.name().to_owned(),
            reason,
        })?;
        let mut newest = self.newest.write();
        let before = newest.get(&limit.id());
        if let Some(plan) = before.filter(|plan| plan.limit.version() >= limit.version()) {
            return Ok(Arc::clone(plan));
        }
        // Later than the version before, even within a millisecond.
        let since = before.map_or(0, |plan| plan.since_millis + 1).max(now().as_nanos() / 1_000_000);
        let plan = Arc::new(Plan {
            limit: limit.clone(),
            kept,
            keys: KeySpace::new(&self.prefix, limit.name()),
            since: base36(since),
            since_millis: since,
        });
        newest.insert(limit.id(), Arc::clone(&plan));
        Ok(plan)
    }

    /// Forgets the plan of a limit that nobody asks for any more.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.newest.write().remove(&limit);
    }

    /// Goes on with parameters that were found on Redis, if they are newer than those of `plan`: the plan to go by.
    pub(crate) fn adopt(
        &self,
        plan: &Arc<Plan>,
        kept: &Arc<dyn AnyKept>,
        since: &str,
        now: Timestamp,
    ) -> Option<Arc<Plan>> {
        let since_millis = u64::from_str_radix(since, 36).ok()?;
        // What comes from the future was written by a clock that was wrong, and must not count until then.
        let is_wrong = since_millis > (now + FUTURE).as_nanos() / 1_000_000;
        if since_millis <= plan.since_millis || is_wrong {
            return None;
        }
        let adopted = Arc::new(plan.as_written(kept, since));
        let mut newest = self.newest.write();
        match newest.get(&plan.limit.id()) {
            // Somebody was faster, here or with another version.
            Some(current) if current.since_millis >= since_millis => Some(Arc::clone(current)),
            _ => {
                newest.insert(plan.limit.id(), Arc::clone(&adopted));
                Some(adopted)
            }
        }
    }
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_36_is_read_back() {
        for number in [0, 35, 36, 1_794_751_522_951, u64::MAX] {
            assert_eq!(u64::from_str_radix(&base36(number), 36), Ok(number));
        }
    }
}
