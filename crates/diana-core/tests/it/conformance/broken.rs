//! Stores that are broken in one way each: the in-process store behind a faulty wrapper.

#![allow(clippy::disallowed_types, reason = "tests need no lock abstraction")]

use diana_core::{
    Answer, Ask, Change, Cost, Decision, Limit, LimitId, LocalStore, MaxWait, MemoryStore, Outcome, Query, Retry,
    Status, Store, StoreError, Timestamp,
};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::Poll;
use std::time::Duration;

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ChargesDenials,
    ChargesUntilDenied,
    ChargesDuplicates,
    PeekTakes,
    PeekReturnsStatusAfter,
    IgnoresRefunds,
    RefundsDenials,
    RefundsAll,
    AsksBeforeCharging,
    IgnoresResets,
    TimeGoesBack,
    TruncatesKeys,
    EndsKeysAtNul,
    ReadsKeysAsText,
    MergesLimits,
    LosesUsageOnChange,
    IgnoresChanges,
    RetryForPermanentDenial,
    TruncatesCosts,
    DropsKeysEarly,
    RoundsTime,
    TwoSteps,
    LacksLogs,
    IgnoresMaxWaitOfAsk,
}

/// A store with a fault.
#[derive(Debug)]
pub(crate) struct Broken {
    inner: MemoryStore,
    fault: Fault,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    latest: Timestamp,
    limits: BTreeMap<LimitId, Limit>,
    first: Option<Limit>,
}

/// An ask modified by the fault.
struct ModifiedAsk {
    limit: Limit,
    key: Vec<u8>,
    cost: Cost,
    max_wait: MaxWait,
}

impl Broken {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { inner: MemoryStore::default(), fault, history: Mutex::default() }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn modify(&self, asks: &[Ask<'_>], now: Timestamp) -> Vec<ModifiedAsk> {
        asks.iter().map(|ask| self.modify_one(ask, now)).collect()
    }

    fn modify_one(&self, ask: &Ask<'_>, now: Timestamp) -> ModifiedAsk {
        let mut modified =
            ModifiedAsk { limit: ask.limit.clone(), key: ask.key.to_vec(), cost: ask.cost, max_wait: ask.max_wait };
        let mut history = self.history.lock().unwrap();
        match self.fault {
            Fault::TruncatesKeys => modified.key.truncate(1024),
            Fault::EndsKeysAtNul => modified.key = ask.key.split(|byte| *byte == 0).next().unwrap().to_vec(),
            Fault::ReadsKeysAsText => modified.key = String::from_utf8_lossy(ask.key).into_owned().into_bytes(),
            Fault::MergesLimits => modified.limit = history.first.get_or_insert(modified.limit).clone(),
            Fault::IgnoresMaxWaitOfAsk => modified.max_wait = MaxWait::FOREVER,
            Fault::TruncatesCosts => modified.cost = Cost::new(ask.cost.get() & 0xffff_ffff).unwrap_or_default(),
            Fault::IgnoresChanges => {
                modified.limit = history.limits.entry(ask.limit.id()).or_insert(modified.limit).clone();
            }
            Fault::LosesUsageOnChange => {
                let known = history.limits.insert(ask.limit.id(), modified.limit.clone());
                if known.is_some_and(|known| known.version() < ask.limit.version()) {
                    LocalStore::forget(&self.inner, ask.limit);
                }
            }
            Fault::TimeGoesBack if now < history.latest => LocalStore::reset(&self.inner, ask.limit, ask.key, now),
            Fault::DropsKeysEarly if now.since(history.latest) >= Duration::from_secs(1) => {
                LocalStore::forget(&self.inner, ask.limit);
            }
            _ => {}
        }
        drop(history);
        modified
    }

    /// The time that the store uses.
    fn time(&self, now: Timestamp) -> Timestamp {
        let mut history = self.history.lock().unwrap();
        history.latest = history.latest.max(now);
        match self.fault {
            Fault::RoundsTime => Timestamp::from_millis(now.as_nanos() / 10_000_000 * 10),
            _ => now,
        }
    }

    fn take(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let peeked = LocalStore::peek(&self.inner, asks, now, max_wait);
        match self.fault {
            Fault::ChargesDenials if !peeked.is_granted() => {
                asks.iter().for_each(|ask| LocalStore::charge(&self.inner, *ask, now));
                peeked
            }
            Fault::ChargesUntilDenied if asks.len() > 1 => {
                for ask in asks {
                    if !LocalStore::decide(&self.inner, std::slice::from_ref(ask), now, max_wait).is_granted() {
                        break;
                    }
                }
                peeked
            }
            Fault::ChargesDuplicates if peeked.is_granted() => {
                let each = asks.iter().flat_map(|ask| {
                    let decision = LocalStore::decide(&self.inner, std::slice::from_ref(ask), now, MaxWait::FOREVER);
                    decision.answers().to_vec()
                });
                Decision::new(each)
            }
            Fault::RetryForPermanentDenial => {
                let decision = LocalStore::decide(&self.inner, asks, now, max_wait);
                let later = |answer: &Answer| match answer.retry() {
                    Some(Retry::Never) => answer.with_outcome(Outcome::denied_for(1)),
                    _ => *answer,
                };
                Decision::new(decision.answers().iter().map(later))
            }
            _ => LocalStore::decide(&self.inner, asks, now, max_wait),
        }
    }

    fn supports(&self, asks: &[Ask<'_>]) -> Result<(), StoreError> {
        let log = |ask: &&Ask<'_>| ask.limit.algorithm::<diana_core::SlidingLog>().is_some();
        match asks.iter().find(log) {
            Some(ask) if self.has(Fault::LacksLogs) => Err(StoreError::Unsupported {
                store: "test".to_owned(),
                limit: ask.limit.name().to_owned(),
                reason: "no logs".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

fn borrow(modified: &[ModifiedAsk]) -> Vec<Ask<'_>> {
    modified
        .iter()
        .map(|modified| Ask::new(&modified.limit, &modified.key, modified.cost).with_max_wait(modified.max_wait))
        .collect()
}

/// Yields to other tasks.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Store for Broken {
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        self.supports(asks)?;
        match query {
            Query::Take(max_wait) => Ok(self.take_with_fault(asks, now, max_wait).await),
            Query::Peek(max_wait) => Ok(self.peek_with_fault(asks, now, max_wait)),
            Query::ClThrottle(_) => Ok(LocalStore::query(&self.inner, asks, now, query)),
        }
    }

    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        self.supports(asks)?;
        let modified = self.modify(asks, now);
        let (asks, now) = (borrow(&modified), self.time(now));
        match (change, self.fault) {
            (Change::Refund(_), Fault::IgnoresRefunds) => {}
            (Change::Refund(decision), Fault::RefundsDenials) => {
                for (ask, answer) in asks.iter().zip(decision.answers()) {
                    LocalStore::refund(&self.inner, std::slice::from_ref(ask), &Decision::new([*answer]), now);
                }
            }
            (Change::Refund(_), Fault::RefundsAll) => LocalStore::change(&self.inner, &asks, now, Change::Reset),
            (Change::Charge, Fault::AsksBeforeCharging) => {
                let _ = LocalStore::decide(&self.inner, &asks, now, MaxWait::NONE);
            }
            (Change::Reset, _) if self.has(Fault::IgnoresResets) => {}
            _ => LocalStore::change(&self.inner, &asks, now, change),
        }
        Ok(())
    }
}

impl Broken {
    async fn take_with_fault(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let modified = self.modify(asks, now);
        let now = self.time(now);
        if self.has(Fault::TwoSteps) {
            let peeked = LocalStore::peek(&self.inner, &borrow(&modified), now, max_wait);
            pause().await;
            if peeked.is_granted() {
                borrow(&modified).into_iter().for_each(|ask| LocalStore::charge(&self.inner, ask, now));
            }
            return peeked;
        }
        self.take(&borrow(&modified), now, max_wait)
    }

    fn peek_with_fault(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        let modified = self.modify(asks, now);
        let (asks, now) = (borrow(&modified), self.time(now));
        let peeked = LocalStore::peek(&self.inner, &asks, now, max_wait);
        match self.fault {
            Fault::PeekTakes => LocalStore::decide(&self.inner, &asks, now, max_wait),
            Fault::PeekReturnsStatusAfter if peeked.is_granted() => {
                let after = |answer: &Answer| {
                    let remaining = answer.status().remaining.saturating_sub(1);
                    answer.with_status(Status { remaining, ..answer.status() })
                };
                Decision::new(peeked.answers().iter().map(after))
            }
            _ => peeked,
        }
    }
}
