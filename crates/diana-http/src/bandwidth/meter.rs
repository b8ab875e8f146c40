//! One bucket of bytes: a key's, which all its bodies share, or a request's own.

use diana::Engine;
use diana::core::{
    Algorithm, Answer, Ask, BucketState, Cost, Decision, Limit, LocalStore, MaxWait, MemoryStore, Quota, Store,
    Timestamp, TokenBucket,
};
use diana::rules::{Bodies, Rule};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long a piece takes at the rate: short enough to look even, long enough to be no burden.
const PIECE: Duration = Duration::from_millis(20);

/// Where the buckets of keys are, whatever store the engine shares.
pub(super) trait Counts: fmt::Debug + Send + Sync {
    fn store(&self) -> &MemoryStore;
    fn now(&self) -> Timestamp;
}

impl<S: Store + 'static> Counts for Engine<S> {
    fn store(&self) -> &MemoryStore {
        self.local()
    }

    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

/// When somebody asks, and when it would have asked, had it not been woken late.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) since: Timestamp,
    pub(super) now: Timestamp,
}

/// One bucket of bytes, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    bucket: Bucket,
    rate: Quota,
    /// So many bytes of each body go at full speed first.
    pub(super) after: u64,
    /// Which bodies it is for.
    pub(super) of: Bodies,
}

#[derive(Clone, Debug)]
enum Bucket {
    /// That of a key.
    Shared { limit: Limit, key: Box<[u8]> },
    /// The request's own: the bodies of both ways take from it.
    Own { bucket: Arc<TokenBucket>, state: Arc<Mutex<BucketState>> },
}

impl Meter {
    /// What a rule says about the bodies of `key`.
    pub(super) fn new(rule: &Rule, limit: &Limit, key: &[u8]) -> Option<Self> {
        let bandwidth = rule.bandwidth.as_ref()?;
        let bucket = if rule.by.is_each_request() {
            Bucket::Own { bucket: Arc::new(TokenBucket::new(bandwidth.rate)), state: Arc::default() }
        } else {
            Bucket::Shared { limit: limit.clone(), key: key.into() }
        };
        Some(Self { bucket, rate: bandwidth.rate, after: bandwidth.after, of: bandwidth.of })
    }

    /// What may go at once at most.
    pub(super) fn burst(&self) -> u64 {
        self.rate.burst()
    }

    /// How much is waited for at a time.
    pub(super) fn piece(&self) -> u64 {
        let bytes = u128::from(self.rate.permits()) * PIECE.as_nanos() / self.rate.period().as_nanos().max(1);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp(1, self.rate.burst().max(1))
    }

    /// How long so many bytes take at the rate.
    pub(super) fn time_of(&self, bytes: u64) -> Duration {
        let (nanos, permits) = self.rate.interval();
        let nanos = (u128::from(bytes) * u128::from(nanos)).div_ceil(u128::from(permits.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes so many bytes as of `asked.since`, or says why not. The wait counts from there.
    pub(super) fn take(&self, counts: &dyn Counts, asked: Asked, bytes: Cost, max_wait: MaxWait) -> Answer {
        let Asked { since, now } = asked;
        match &self.bucket {
            Bucket::Shared { limit, key } => {
                counts.store().take_since(Ask::new(limit, key, bytes), since, now, max_wait)
            }
            Bucket::Own { bucket, state } => {
                let max_wait = MaxWait::up_to(max_wait.as_duration().saturating_add(now.since(since)));
                bucket.answer(&mut state.lock(), since, bytes, max_wait)
            }
        }
    }

    /// Whether others may take from it too.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self.bucket, Bucket::Shared { .. })
    }

    /// Gives back what was taken.
    pub(super) fn give_back(&self, counts: &dyn Counts, taken: &Answer) {
        let Some(receipt) = taken.receipt() else { return };
        let now = counts.now();
        match &self.bucket {
            Bucket::Shared { limit, key } => {
                let ask = Ask::new(limit, key, receipt.cost());
                LocalStore::refund(counts.store(), &[ask], &Decision::new([*taken]), now);
            }
            Bucket::Own { bucket, state } => {
                bucket.refund(&mut state.lock(), now, &receipt);
            }
        }
    }
}
