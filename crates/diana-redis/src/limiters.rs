//! Limiters by name, created on first use.

use crate::limiter::SharedLimiter;
use crate::store::RedisStore;
use diana_core::{Algorithm, Clock, Store, SystemClock, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Limiters by name: for programs that create limits at run time, one for each customer or job.
///
/// A limiter's counts are on Redis, under its name; this process only stores the handle. So a limiter may be dropped at
/// any time and created again on its next use, without losing counts. There are never more than
/// [`with_max_limiters`](Self::with_max_limiters), and one that is not used for the
/// [idle timeout](Self::with_idle_timeout) is dropped.
///
/// ```no_run
/// use diana_core::{Quota, TokenBucket};
/// use diana_redis::{Options, RedisStore, SharedLimiters};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
/// let limiters = SharedLimiters::new(&store);
///
/// let quota: Quota = "5/s burst 10".parse()?;
/// let export = limiters.get("export", || TokenBucket::new(quota));
/// export.acquire("customer 7", 1).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SharedLimiters {
    store: RedisStore,
    max_limiters: usize,
    idle_timeout: Duration,
    limiters: Mutex<HashMap<Box<str>, NamedLimiter>>,
}

#[derive(Debug)]
struct NamedLimiter {
    limiter: SharedLimiter,
    last_used: Timestamp,
}

impl SharedLimiters {
    /// Creates limiters on this store: at most 10,000, each dropped when it is not used for an hour.
    pub fn new(store: &RedisStore) -> Self {
        let (max_limiters, idle_timeout) = (10_000, Duration::from_secs(3_600));
        Self { store: store.clone(), max_limiters, idle_timeout, limiters: Mutex::default() }
    }

    /// Sets the maximum number of limiters, at least 1. The least recently used one is evicted.
    #[must_use]
    pub fn with_max_limiters(self, max_limiters: usize) -> Self {
        Self { max_limiters: max_limiters.max(1), ..self }
    }

    /// Sets the time after which an unused limiter is dropped.
    #[must_use]
    pub fn with_idle_timeout(self, idle_timeout: Duration) -> Self {
        Self { idle_timeout, ..self }
    }

    /// Returns the limiter with this name; creates it with `algorithm` if there is none.
    pub fn get<A: Algorithm>(&self, name: &str, algorithm: impl FnOnce() -> A) -> SharedLimiter {
        let now = SystemClock.now();
        let mut limiters = self.limiters.lock();
        if let Some(entry) = limiters.get_mut(name).filter(|entry| now.since(entry.last_used) < self.idle_timeout) {
            entry.last_used = now;
            return entry.limiter.clone();
        }
        // Rare enough to scan all of them: only when a limiter is created.
        self.make_room(&mut limiters, now);
        let limiter = SharedLimiter::new(&self.store, name, algorithm());
        limiters.insert(name.into(), NamedLimiter { limiter: limiter.clone(), last_used: now });
        limiter
    }

    /// Returns the number of limiters.
    pub fn len(&self) -> usize {
        self.limiters.lock().len()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn make_room(&self, limiters: &mut HashMap<Box<str>, NamedLimiter>, now: Timestamp) {
        let mut dropped = Vec::new();
        limiters.retain(|_, entry| {
            let is_idle = now.since(entry.last_used) >= self.idle_timeout;
            if is_idle {
                dropped.push(entry.limiter.clone());
            }
            !is_idle
        });
        while limiters.len() >= self.max_limiters {
            let oldest = limiters.iter().min_by_key(|(_, entry)| entry.last_used).map(|(name, _)| name.clone());
            let Some(entry) = oldest.and_then(|oldest| limiters.remove(&oldest)) else { break };
            dropped.push(entry.limiter);
        }
        for limiter in dropped {
            self.store.forget(limiter.limit());
        }
    }
}
