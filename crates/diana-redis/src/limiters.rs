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
    most: usize,
    idle: Duration,
    limiters: Mutex<HashMap<Box<str>, Entry>>,
}

#[derive(Debug)]
struct Entry {
    limiter: SharedLimiter,
    asked: Timestamp,
}

impl SharedLimiters {
    /// Creates limiters on this store: at most 10,000, each dropped when it is not used for an hour.
    pub fn new(store: &RedisStore) -> Self {
        let (most, idle) = (10_000, Duration::from_secs(3_600));
        Self { store: store.clone(), most, idle, limiters: Mutex::default() }
    }

    /// Sets the maximum number of limiters, at least 1. The least recently used one is evicted.
    #[must_use]
    pub fn with_max_limiters(self, most: usize) -> Self {
        Self { most: most.max(1), ..self }
    }

    /// Sets the time after which an unused limiter is dropped.
    #[must_use]
    pub fn with_idle_timeout(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    /// Returns the limiter with this name; creates it with `algorithm` if there is none.
    pub fn get<A: Algorithm>(&self, name: &str, algorithm: impl FnOnce() -> A) -> SharedLimiter {
        let now = SystemClock.now();
        let mut limiters = self.limiters.lock();
        if let Some(entry) = limiters.get_mut(name).filter(|entry| now.since(entry.asked) < self.idle) {
            entry.asked = now;
            return entry.limiter.clone();
        }
        // Rare enough to scan all of them: only when a limiter is created.
        self.make_room(&mut limiters, now);
        let limiter = SharedLimiter::new(&self.store, name, algorithm());
        limiters.insert(name.into(), Entry { limiter: limiter.clone(), asked: now });
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

    fn make_room(&self, limiters: &mut HashMap<Box<str>, Entry>, now: Timestamp) {
        let mut dropped = Vec::new();
        limiters.retain(|_, entry| {
            let is_idle = now.since(entry.asked) >= self.idle;
            if is_idle {
                dropped.push(entry.limiter.clone());
            }
            !is_idle
        });
        while limiters.len() >= self.most {
            let oldest = limiters.iter().min_by_key(|(_, entry)| entry.asked).map(|(name, _)| name.clone());
            let Some(entry) = oldest.and_then(|oldest| limiters.remove(&oldest)) else { break };
            dropped.push(entry.limiter);
        }
        for limiter in dropped {
            self.store.forget(limiter.limit());
        }
    }
}
