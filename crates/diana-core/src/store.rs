//! Where the states of keys live, and the contract that every such place keeps.

use crate::{Cost, Decision, Limit, MaxWait, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

pub(crate) mod budget;
mod changes;
pub(crate) mod memory;
mod segment;
pub(crate) mod shards;
pub(crate) mod table;

/// One limit's share of a request: which limit, which key, how much.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The limit that is asked.
    pub limit: &'a Limit,
    /// Whose count it is, as the limit tells keys apart: an account, an address, nothing for everyone together.
    pub key: &'a [u8],
    /// How much is asked for.
    pub cost: Cost,
    /// How long this limit may make the request wait, if the request would wait longer for others: no less than the
    /// request itself, unless you say otherwise.
    pub max_wait: MaxWait,
}

impl<'a> Ask<'a> {
    /// One permit of `limit` for `key`.
    pub fn one(limit: &'a Limit, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(limit, key, Cost::ONE)
    }

    /// `cost` permits of `limit` for `key`.
    pub fn new(limit: &'a Limit, key: &'a (impl AsRef<[u8]> + ?Sized), cost: Cost) -> Self {
        Self { limit, key: key.as_ref(), cost, max_wait: MaxWait::FOREVER }
    }

    /// The same ask, of which the limit may make the request wait for `max_wait` at most.
    #[must_use]
    pub fn with_max_wait(self, max_wait: MaxWait) -> Self {
        Self { max_wait, ..self }
    }

    /// Whether both ask for the same count.
    pub fn same_count(&self, other: &Self) -> bool {
        self.limit.id() == other.limit.id() && self.key == other.key
    }
}

/// Where the states of keys live, if that is in this process: it answers at once and is told the time.
///
/// # The contract
/// 1. `decide` is atomic: concurrent calls act as if in some order, and either every ask is charged or none.
/// 2. A denied request leaves every key as it was.
/// 3. The same limit and key twice in one request is charged once, at the larger cost and the lesser maximum wait.
/// 4. `peek` answers what `decide` would, as long as there is memory, and changes nothing; its standings are those before.
/// 5. `refund` gives back what a granted decision took, as far as time has not; `charge` takes without asking.
/// 6. A key whose state equals a fresh one may be forgotten; nobody can tell.
/// 7. A limit that [changed](Limit::changed_to) keeps each key's use, clamped.
///
/// `conformance::run` (feature `conformance`) checks them. A new store is done when it passes.
pub trait LocalStore: Send + Sync {
    /// Answers all `asks` of one request at `now`, waiting at most `max_wait`, and for each ask at most as long as its own
    /// maximum wait says: all or nothing.
    fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision;

    /// What [`decide`](Self::decide) would answer, without the effect.
    fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision;

    /// Gives back what `decision`, the answer to these very `asks`, took: once. A denied decision took nothing.
    fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp);

    /// Takes `ask.cost` without asking, even beyond the capacity.
    fn charge(&self, ask: Ask<'_>, now: Timestamp);

    /// Makes `key` as good as new for `limit`.
    fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp);

    /// Hears that nobody asks for `limit` any more: what is kept in this process about it may go.
    fn forget(&self, limit: &Limit) {
        let _ = limit;
    }
}

/// Where the states of keys live, wherever that is. The contract is [`LocalStore`]'s; every `LocalStore` is a `Store`.
///
/// `now` is the caller's time. A store that many processes share has its own, and goes by that.
pub trait Store: Send + Sync {
    /// Answers all `asks` of one request, waiting at most `max_wait`: all or nothing.
    fn decide(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        max_wait: MaxWait,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// What [`decide`](Self::decide) would answer, without the effect.
    fn peek(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        max_wait: MaxWait,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Gives back what `decision`, the answer to `asks`, took.
    fn refund(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Begins to give back what `decision`, the answer to `asks`, took, for guards that are dropped and can't wait. The future
    /// says what became of it, and does what is left to do.
    ///
    /// A store that other processes share, and that this process hence asks over a connection, should answer every
    /// [`decide`](Self::decide) that begins after this as if the refund had been carried out. One that does not is asked to
    /// [`refund`](Self::refund) when the future is first polled.
    fn start_refund(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture
    where
        Self: Sized + 'static,
    {
        let (store, decision) = (Arc::clone(self), decision.clone());
        let asks = asks.iter().map(|ask| (ask.limit.clone(), ask.key.to_vec(), ask.cost)).collect::<Vec<_>>();
        Box::pin(async move {
            let asks = asks.iter().map(|(limit, key, cost)| Ask::new(limit, key, *cost)).collect::<Vec<_>>();
            store.refund(&asks, &decision, now).await
        })
    }

    /// Takes `ask.cost` without asking.
    fn charge(&self, ask: Ask<'_>, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes `key` as good as new for `limit`.
    fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Hears that what `decision`, the answer to `asks`, put in flight is still held. What was not put in flight, or has been
    /// given back, stays as it is.
    fn extend(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        let _ = (asks, decision, now);
        std::future::ready(Ok(()))
    }

    /// How often the store wants to hear of what is [still held](Self::extend); `None` if it counts it until it is given back.
    fn extend_every(&self) -> Option<std::time::Duration> {
        None
    }

    /// Tells `listener`, for as long as it is there, when another process [resets](Self::reset) a key. A store that no other process
    /// shares has nothing to tell.
    fn on_reset(&self, listener: Weak<dyn ResetListener>) {
        let _ = listener;
    }

    /// Whether a decision of this store was made by the counts that this process keeps while the shared ones are unreachable.
    fn is_fallback(&self, decision: &Decision) -> bool {
        let _ = decision;
        false
    }

    /// Hears that nobody here asks for `limit` any more: what is kept in this process about it may go. What others share
    /// stays.
    fn forget(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Hears the number of the configuration that limits belong to which are new or change from now on. Where many share a
    /// store, the highest number counts.
    fn configure(&self, number: u64) {
        let _ = number;
    }
}

/// Who is told by a store that [another process has reset a key](Store::on_reset).
pub trait ResetListener: Send + Sync {
    /// Another process has reset some key, or may have. Must not block.
    fn key_reset(&self);
}

/// A refund that has [begun](Store::start_refund).
pub type RefundFuture = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

impl<S: LocalStore> Store for S {
    async fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        Ok(LocalStore::decide(self, asks, now, max_wait))
    }

    async fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        Ok(LocalStore::peek(self, asks, now, max_wait))
    }

    async fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        LocalStore::refund(self, asks, decision, now);
        Ok(())
    }

    fn start_refund(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture
    where
        Self: 'static,
    {
        LocalStore::refund(&**self, asks, decision, now);
        Box::pin(std::future::ready(Ok(())))
    }

    async fn charge(&self, ask: Ask<'_>, now: Timestamp) -> Result<(), StoreError> {
        LocalStore::charge(self, ask, now);
        Ok(())
    }

    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        LocalStore::reset(self, limit, key, now);
        Ok(())
    }

    fn forget(&self, limit: &Limit) {
        LocalStore::forget(self, limit);
    }
}

/// Why a store gave no decision. Being denied is not here: that is a decision.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store could not be reached, so nothing was charged. Decide by local counts, or try again.
    #[error("store `{store}` can't be reached; nothing was charged: {reason}")]
    Unreachable {
        /// Which store.
        store: String,
        /// What the connection says.
        reason: String,
    },
    /// The store took too long; whether it charged anything is unknown, but it never charges after the deadline.
    #[error("store `{store}` gave no answer within {after:?}; it may have charged the request")]
    TimedOut {
        /// Which store.
        store: String,
        /// How long it was waited for.
        after: std::time::Duration,
    },
    /// The store has no way to keep this limit. Nothing was charged; use another algorithm or another store.
    #[error("store `{store}` can't keep limit `{limit}`; nothing was charged: {reason}")]
    Unsupported {
        /// Which store.
        store: String,
        /// Which limit.
        limit: String,
        /// Why.
        reason: String,
    },
}
