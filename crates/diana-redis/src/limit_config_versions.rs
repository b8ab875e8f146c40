//! The configuration of each limit: its newest version that this process knows, and the number of its configuration.
//!
//! # Which parameters count
//! A limit's states contain the parameters under which they were written. A process that finds different parameters
//! migrates the state to its own. While a new configuration is rolled out, gateways with the old and the new one
//! migrate states back and forth, and each time clamped values are lost. No clock shows which of the two is newer:
//! an old gateway that is restarted starts later. So configurations may be numbered; states contain the number too, and
//! a process that finds a higher number uses the parameters that belong to it.

use crate::algorithms;
use crate::erased_algorithm::ErasedAlgorithm;
use crate::key::KeySpace;
use diana_core::{Limit, LimitId, StoreError, Timestamp};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The maximum number of limits whose configs are cached. An evicted config is created again when it is needed.
const MAX_LIMITS: usize = 65_536;

/// One version of a limit, as stored on Redis.
#[derive(Debug)]
pub(crate) struct LimitConfig {
    pub(crate) limit: Limit,
    pub(crate) algorithm: Arc<dyn ErasedAlgorithm>,
    pub(crate) keys: KeySpace,
    /// The number of the configuration that the parameters belong to, as base 36 text.
    pub(crate) since: String,
    configuration: u64,
    /// When the limit changed to this version, if it changed while in use, and the stored permits of an idle key at that time.
    changed: Option<(Timestamp, f64)>,
    /// The minimum time for which its keys are stored after a grant.
    pub(crate) min_expiry: Duration,
}

impl LimitConfig {
    /// Returns the stored permits of a key without a state at `now`, if they differ from a new key's: within the
    /// microsecond of a change, an idle key that has expired has the permits that it would have if it were still stored.
    pub(crate) fn stored_at(&self, now: Timestamp) -> Option<f64> {
        self.changed.filter(|(at, _)| at.as_micros() == now.as_micros()).map(|(_, stored)| stored)
    }

    /// Returns the same limit's config under parameters that were found on Redis.
    pub(crate) fn as_written(&self, algorithm: &Arc<dyn ErasedAlgorithm>, since: &str) -> Self {
        let (limit, keys, algorithm) = (self.limit.clone(), self.keys.clone(), Arc::clone(algorithm));
        let configuration = number(since).unwrap_or(0);
        Self {
            limit,
            algorithm,
            keys,
            since: base36(configuration),
            configuration,
            changed: None,
            min_expiry: self.min_expiry,
        }
    }
}

/// The configs of all limits in use.
#[derive(Debug)]
pub(crate) struct LimitConfigs {
    prefix: String,
    newest: RwLock<HashMap<LimitId, Arc<LimitConfig>>>,
    /// The number of the configuration that new and changed limits belong to.
    configuration: AtomicU64,
    adopted: AtomicU64,
    /// The limits whose keys are stored for longer than they affect decisions.
    min_expiry: RwLock<HashMap<LimitId, Duration>>,
}

impl LimitConfigs {
    pub(crate) fn new(prefix: &str) -> Self {
        let (configuration, adopted) = (AtomicU64::new(0), AtomicU64::new(0));
        Self {
            prefix: prefix.to_owned(),
            newest: RwLock::default(),
            configuration,
            adopted,
            min_expiry: RwLock::default(),
        }
    }

    /// Stores the keys of a limit for at least `min_expiry` after a grant, unless there are too many such limits.
    pub(crate) fn set_min_expiry(&self, limit: LimitId, min_expiry: Duration) {
        let mut min_expiries = self.min_expiry.write();
        if min_expiries.len() < MAX_LIMITS {
            min_expiries.insert(limit, min_expiry);
        }
        // An existing config does not contain it.
        self.newest.write().remove(&limit);
    }

    /// Sets the number of the configuration for limits that are new or change from now on.
    pub(crate) fn configure(&self, number: u64) {
        self.configuration.store(number, Ordering::Relaxed);
    }

    /// Returns how often parameters of a newer configuration were found and adopted.
    pub(crate) fn adopted(&self) -> u64 {
        self.adopted.load(Ordering::Relaxed)
    }

    /// Returns the config for `limit`, or for a newer version of it; `now` is the time of the ask, if it is for one.
    pub(crate) fn find(&self, limit: &Limit, now: Option<Timestamp>) -> Result<Arc<LimitConfig>, StoreError> {
        match self.newest.read().get(&limit.id()) {
            Some(config) if config.limit.version() >= limit.version() => return Ok(Arc::clone(config)),
            _ => {}
        }
        let algorithm = algorithms::scripted_algorithm(limit).map_err(|reason| StoreError::Unsupported {
            store: "redis".to_owned(),
            limit: limit.name().to_owned(),
            reason,
        })?;
        let min_expiry = self.min_expiry.read().get(&limit.id()).copied().unwrap_or_default();
        let mut newest = self.newest.write();
        let before = newest.get(&limit.id());
        if let Some(config) = before.filter(|config| config.limit.version() >= limit.version()) {
            return Ok(Arc::clone(config));
        }
        let changed = before.and_then(|before| {
            // The same parameters again are not a change.
            if before.algorithm.parameters() == algorithm.parameters() {
                return before.changed;
            }
            let stored = algorithm.stored_after_change(&*before.algorithm, before.stored_at(now?), now?)?;
            Some((now?, stored))
        });
        let configuration = self.configuration.load(Ordering::Relaxed);
        let keys = KeySpace::new(&self.prefix, limit.name());
        let since = base36(configuration);
        let config = LimitConfig { limit: limit.clone(), algorithm, keys, since, configuration, changed, min_expiry };
        let config = Arc::new(config);
        if newest.len() >= MAX_LIMITS {
            newest.clear();
        }
        newest.insert(limit.id(), Arc::clone(&config));
        Ok(config)
    }

    /// Removes the config of a limit that is no longer used.
    pub(crate) fn forget(&self, limit: LimitId) {
        self.min_expiry.write().remove(&limit);
        self.newest.write().remove(&limit);
    }

    /// Adopts parameters that were found on Redis, if they are of a newer configuration than those of `config`. Returns
    /// the config to use.
    pub(crate) fn adopt(
        &self,
        config: &Arc<LimitConfig>,
        algorithm: &Arc<dyn ErasedAlgorithm>,
        since: &str,
    ) -> Option<Arc<LimitConfig>> {
        let configuration = number(since).filter(|number| *number > config.configuration)?;
        let mut newest = self.newest.write();
        match newest.get(&config.limit.id()) {
            // Another task adopted it first, or a different version.
            Some(current) if current.configuration >= configuration => Some(Arc::clone(current)),
            _ => {
                let (limit, own) = (config.limit.name(), config.configuration);
                tracing::warn!(
                    limit,
                    own,
                    found = configuration,
                    "adopted a newer configuration of this limit from other instances"
                );
                self.adopted.fetch_add(1, Ordering::Relaxed);
                let adopted = Arc::new(config.as_written(algorithm, since));
                newest.insert(config.limit.id(), Arc::clone(&adopted));
                Some(adopted)
            }
        }
    }
}

/// Parses the number of a configuration; an optional suffix is the time when the state was created.
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
    fn base_36_is_parsed_back() {
        for number in [0, 35, 36, 1_794_751_522_951, u64::MAX] {
            assert_eq!(u64::from_str_radix(&base36(number), 36), Ok(number));
        }
    }
}
