//! One bucket of bytes: of a key, shared by all its bodies, or of a single request.

use diana::Engine;
use diana::algorithm::{Algorithm, BucketState};
use diana::rules::rule::{Bandwidth, Bodies, Rule};
use diana::store::{Ask, Decision, Limit, LocalStore};
use diana::{Answer, Cost, MaxWait, Quota, Timestamp, TokenBucket};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The time at which bytes are acquired, and when that would have been without a late wake-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcquireTime {
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}

/// One bucket of bytes, and the bodies that it throttles.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    bucket: Bucket,
    rate: Quota,
    /// The first bytes of each body, which pass at full speed.
    pub(super) after: u64,
    /// The bodies that it throttles.
    pub(super) bodies: Bodies,
}

#[derive(Clone, Debug)]
enum Bucket {
    /// The bucket of a key.
    Shared { limit: Limit, key: Box<[u8]> },
    /// The bucket of a single request, shared by its request and response body.
    PerRequest { bucket: Arc<TokenBucket>, state: Arc<Mutex<BucketState>> },
}

impl Meter {
    /// Returns the bucket of a rule for the bodies of `key`.
    pub(super) fn new(rule: &Rule, limit: &Limit, key: &[u8]) -> Option<Self> {
        let bandwidth = rule.bandwidth.as_ref()?;
        let bucket = if rule.by.is_each_request() {
            Bucket::PerRequest { bucket: Arc::new(TokenBucket::new(bandwidth.rate)), state: Arc::default() }
        } else {
            Bucket::Shared { limit: limit.clone(), key: key.into() }
        };
        Some(Self { bucket, rate: bandwidth.rate, after: bandwidth.after, bodies: bandwidth.of })
    }

    /// Returns how many bytes can pass at once.
    pub(super) fn burst(&self) -> u64 {
        self.rate.burst()
    }

    /// Returns how many bytes to wait for at a time.
    pub(super) fn chunk(&self) -> u64 {
        Bandwidth::chunk_of(self.rate).min(self.rate.burst().max(1))
    }

    /// Returns how long `bytes` take at the rate.
    pub(super) fn duration_of(&self, bytes: u64) -> Duration {
        let (nanos, permits) = self.rate.interval();
        let nanos = (u128::from(bytes) * u128::from(nanos)).div_ceil(u128::from(permits.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Acquires `bytes` as of `time.since`, or returns the denial. The wait is relative to that time.
    pub(super) fn acquire(&self, engine: &Engine, time: AcquireTime, bytes: Cost, max_wait: MaxWait) -> Answer {
        let AcquireTime { since, now } = time;
        match &self.bucket {
            Bucket::Shared { limit, key } => {
                engine.local().take_since(Ask::new(limit, key, bytes), since, now, max_wait)
            }
            Bucket::PerRequest { bucket, state } => {
                let max_wait = MaxWait::up_to(max_wait.as_duration().saturating_add(now.since(since)));
                bucket.answer(&mut state.lock(), since, bytes, max_wait)
            }
        }
    }

    /// Returns `true` if other requests share it.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.bucket, Bucket::Shared { .. })
    }

    /// Refunds permits.
    pub(super) fn refund(&self, engine: &Engine, answer: &Answer) {
        let Some(receipt) = answer.receipt() else { return };
        let now = engine.now();
        match &self.bucket {
            Bucket::Shared { limit, key } => {
                let ask = Ask::new(limit, key, receipt.cost());
                LocalStore::refund(engine.local(), &[ask], &Decision::new([*answer]), now);
            }
            Bucket::PerRequest { bucket, state } => {
                bucket.refund(&mut state.lock(), now, &receipt);
            }
        }
    }
}
