//! How each limit is kept: its newest version, as far as this process knows, and of which configuration.
//!
//! # Which parameters count
//! A limit's states carry the parameters under which they were written. Whoever finds others than its own carries the
//! state over to its own. While a new configuration is rolled out, gateways with the old one and with the new one take turns
//! at that, and each time what is clamped on the way is lost. No clock can tell which of the two is newer: an old gateway
//! that is restarted starts later. So whoever has configurations may number them; states carry the number too, and who finds
//! a higher one goes by it.

use crate::erased::ErasedAlgorithm;
use crate::key::KeySpace;
use crate::kind;
use diana_core::{Limit, LimitId, StoreError, Timestamp};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The most limits whose plans are kept. A plan that is gone is made again when it is needed.
const MOST: usize = 65_536;

/// How one version of a limit is kept.
#[derive(Debug)]
pub(crate) struct LimitConfig {
    pub(crate) limit: Limit,
    pub(crate) erased: Arc<dyn ErasedAlgorithm>,
    pub(crate) keys: KeySpace,
    /// The number of the configuration that the parameters belong to: as text, to base 36.
    pub(crate) since: String,
    configuration: u64,
    /// When the limit changed to this version, if it did so while asked, and what an idle key had in store then.
    changed: Option<(Timestamp, f64)>,
    /// How long its keys are kept after a grant, at least.
    pub(crate) keeps: Duration,
}

impl LimitConfig {
    /// What a key without a state has in store at `now`, where that is not what a fresh one has: within the microsecond of
    /// a change, an idle key that was forgotten has what it would have if it had been kept.
    pub(crate) fn stored_at(&self, now: Timestamp) -> Option<f64> {
        self.changed.filter(|(at, _)| at.as_micros() == now.as_micros()).map(|(_, stored)| stored)
    }

    /// The same limit's plan under parameters that were found on Redis.
    pub(crate) fn as_written(&self, erased: &Arc<dyn ErasedAlgorithm>, since: &str) -> Self {
        let (limit, keys, erased) = (self.limit.clone(), self.keys.clone(), Arc::clone(erased));
        let configuration = number(since).unwrap_or(0);
        Self { limit, erased, keys, since: base36(configuration), configuration, changed: None, keeps: self.keeps }
    }
}

/// The plans of all limits that were seen.
#[derive(Debug)]
pub(crate) struct LimitConfigs {
    prefix: String,
    newest: RwLock<HashMap<LimitId, Arc<LimitConfig>>>,
    /// The number of the configuration that limits belong to from now on.
    configuration: AtomicU64,
    adopted: AtomicU64,
    /// The limits whose keys are kept for longer than they matter.
    keeps: RwLock<HashMap<LimitId, Duration>>,
}

impl LimitConfigs {
    pub(crate) fn new(prefix: &str) -> Self {
        let (configuration, adopted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { prefix: prefix.to_owned(), newest: RwLock::default(), configuration, adopted, keeps: RwLock::default() }
    }

    /// Keeps the keys of a limit for at least `least` after a grant; as long as there are not too many such limits.
    pub(crate) fn keep_keys(&self, limit: LimitId, least: Duration) {
        let mut keeps = self.keeps.write();
        if keeps.len() < MOST {
            keeps.insert(limit, least);
        }
        // A plan that is there already does not know it.
        self.newest.write().remove(&limit);
    }

    /// Numbers the configuration that limits belong to which are new or change from now on.
    pub(crate) fn configure(&self, number: u64) {
        self.configuration.store(number, Ordering::Relaxed);
    }

    /// How often parameters of a newer configuration were found and gone by.
    pub(crate) fn adopted(&self) -> u64 {
        self.adopted.load(Ordering::Relaxed)
    }

    /// The plan for `limit`, or for a newer version of it, for an ask at `now` if it is for one.
    pub(crate) fn find(&self, limit: &Limit, now: Option<Timestamp>) -> Result<Arc<LimitConfig>, StoreError> {
        match self.newest.read().get(&limit.id()) {
            Some(config) if config.limit.version() >= limit.version() => return Ok(Arc::clone(config)),
            _ => {}
        }
        let erased = kind::erased(limit).map_err(|reason| StoreError::Unsupported {
            store: "redis".to_owned(),
            limit: limit.name().to_owned(),
            reason,
        })?;
        let keeps = self.keeps.read().get(&limit.id()).copied().unwrap_or_default();
        let mut newest = self.newest.write();
        let before = newest.get(&limit.id());
        if let Some(config) = before.filter(|config| config.limit.version() >= limit.version()) {
            return Ok(Arc::clone(config));
        }
        let changed = before.and_then(|before| {
            // The same parameters once more change nothing.
            if before.erased.parameters() == erased.parameters() {
                return before.changed;
            }
            let stored = erased.stored_after_change(&*before.erased, before.stored_at(now?), now?)?;
            Some((now?, stored))
        });
        let configuration = self.configuration.load(Ordering::Relaxed);
        let keys = KeySpace::new(&self.prefix, limit.name());
        let since = base36(configuration);
        let config = LimitConfig { limit: limit.clone(), erased, keys, since, configuration, changed, keeps };
        let config = Arc::new(config);
        if newest.len() >= MOST {
            newest.clear();
        }
        newest.insert(limit.id(), Arc::clone(&config));
        Ok(config)
    }

    /// Forgets the plan of a limit that nobody asks for any more.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.keeps.write().remove(&limit);
        self.newest.write().remove(&limit);
    }

    /// Goes on with parameters that were found on Redis, if they are of a newer configuration than those of `config`: the plan
    /// to go by.
    pub(crate) fn adopt(
        &self,
        config: &Arc<LimitConfig>,
        erased: &Arc<dyn ErasedAlgorithm>,
        since: &str,
    ) -> Option<Arc<LimitConfig>> {
        let configuration = number(since).filter(|number| *number > config.configuration)?;
        let mut newest = self.newest.write();
        match newest.get(&config.limit.id()) {
            // Somebody was faster, here or with another version.
            Some(current) if current.configuration >= configuration => Some(Arc::clone(current)),
            _ => {
                let (limit, own) = (config.limit.name(), config.configuration);
                tracing::warn!(
                    limit,
                    own,
                    found = configuration,
                    "others have a newer configuration of this limit; it counts"
                );
                self.adopted.fetch_add(1, Ordering::Relaxed);
                let adopted = Arc::new(config.as_written(erased, since));
                newest.insert(config.limit.id(), Arc::clone(&adopted));
                Some(adopted)
            }
        }
    }
}

/// The number of a configuration; what may follow it says when the state came to be.
fn number(since: &str) -> Option<u64> {
    u64::from_str_radix(since.split('-').next()?, 36).ok()
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
