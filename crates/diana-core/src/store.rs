//! Where the states of keys are stored, and the contract of every store.

use crate::{ClThrottle, Cost, MaxWait, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

pub(crate) mod budget;
mod dyn_algorithm;
pub(crate) mod erased_algorithm;
pub(crate) mod erased_table;
mod limit;
mod limit_versions;
pub(crate) mod memory;
mod segment;
pub(crate) mod shards;
mod siphash;
pub(crate) mod table;

pub use crate::decision::Decision;
pub use dyn_algorithm::DynAlgorithm;
pub use limit::{Limit, LimitId, LimitIdHasher, MemoryBound};
pub use memory::{HashSecret, InvalidSavedKeys, KeyUsage, MemoryStore, TableOptions, saved_key_count};
pub use table::OnFull;

/// One limit's part of a request: limit, key, and cost.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// The key within the limit: an account, an address, or empty for one count over all requests.
    pub key: &'a [u8],
    /// The number of permits.
    pub cost: Cost,
    /// How long this limit may make the request wait, if that is shorter than the request's own maximum wait. By
    /// default only the request's own applies.
    pub max_wait: MaxWait,
}

impl<'a> Ask<'a> {
    /// Asks for one permit of `limit` for `key`.
    pub fn one(limit: &'a Limit, key: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(limit, key, Cost::ONE)
    }

    /// Asks for `cost` permits of `limit` for `key`.
    pub fn new(limit: &'a Limit, key: &'a (impl AsRef<[u8]> + ?Sized), cost: Cost) -> Self {
        Self { limit, key: key.as_ref(), cost, max_wait: MaxWait::FOREVER }
    }

    /// Returns the same ask, for which the limit may make the request wait at most `max_wait`.
    #[must_use]
    pub fn with_max_wait(self, max_wait: MaxWait) -> Self {
        Self { max_wait, ..self }
    }

    /// Returns `true` if both asks use the same count.
    pub fn same_count(&self, other: &Self) -> bool {
        self.limit.id() == other.limit.id() && self.key == other.key
    }
}

/// A question to a store about the asks of one request. A new operation is a new variant, which every store must answer.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// Takes from all limits or from none; waits at most this long, and for each ask at most its own maximum wait.
    Take(MaxWait),
    /// Returns the decision of [`Take`](Self::Take), and changes nothing.
    Peek(MaxWait),
    /// Decides one `CL.THROTTLE` call for each ask, whose limit must be a [`TimeDebt`](crate::TimeDebt): the parameters
    /// come with the call, the cost of the ask is ignored. A store in this process denies the calls of any other limit, a
    /// shared one returns an error.
    ClThrottle(&'a ClThrottle),
}

/// A change of the counts of some asks.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Charges the cost of each ask unconditionally, even over the limit.
    Charge,
    /// Refunds a decision, which must be the answer to these asks, once. A denied decision took nothing.
    Refund(&'a Decision),
    /// Extends the leases of the in-flight permits of a decision, the answer to these asks. Permits that are not in
    /// flight, or that have been released, are unchanged, and so is a store whose permits do not expire.
    Extend(&'a Decision),
    /// Resets the key of each ask.
    Reset,
}

/// A store in this process: it answers immediately and gets the time as a parameter.
///
/// A store implements [`query`](Self::query) and [`change`](Self::change); the other functions are names for them.
///
/// # The contract
/// 1. [`Query::Take`] is atomic: concurrent calls act as if in some order, and either every ask is charged or none.
/// 2. A denied request leaves every key unchanged.
/// 3. The same limit and key twice in one request is charged once, at the higher cost and the shorter maximum wait.
/// 4. [`Query::Peek`] answers as `Take` would while memory is available, and changes nothing; its statuses are those
///    before.
/// 5. [`Change::Refund`] undoes a granted decision except for refilled permits; `Charge` takes unconditionally.
/// 6. A key whose state equals a fresh one may be dropped; this is not observable.
/// 7. A limit that [changed](Limit::changed_to) keeps each key's usage, clamped.
///
/// `conformance::run` (feature `conformance`) checks them. A new store is complete when it passes.
pub trait LocalStore: Send + Sync {
    /// Decides the `asks` of one request at `now`.
    fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Decision;

    /// Changes the counts of `asks`.
    fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>);

    /// [Takes](Query::Take) all `asks` or none.
    #[inline]
    fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        self.query(asks, now, Query::Take(max_wait))
    }

    /// [Peeks](Query::Peek) at all `asks`.
    fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Decision {
        self.query(asks, now, Query::Peek(max_wait))
    }

    /// [Refunds](Change::Refund) the answer to `asks`.
    fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) {
        self.change(asks, now, Change::Refund(decision));
    }

    /// [Charges](Change::Charge) one ask.
    fn charge(&self, ask: Ask<'_>, now: Timestamp) {
        self.change(&[ask], now, Change::Charge);
    }

    /// [Resets](Change::Reset) one key.
    fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) {
        self.change(&[Ask::one(limit, key)], now, Change::Reset);
    }

    /// Reports that `limit` is no longer used: its data in this process may be dropped.
    fn forget(&self, limit: &Limit) {
        let _ = limit;
    }
}

/// A store, in this process or shared. The contract is [`LocalStore`]'s; every `LocalStore` is a `Store`.
///
/// `now` is the caller's time. A store that several processes share uses its own clock instead.
pub trait Store: Send + Sync {
    /// Decides the `asks` of one request.
    fn query(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        query: Query<'_>,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send;

    /// Changes the counts of `asks`.
    fn change(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        change: Change<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// [Takes](Query::Take) all `asks` or none.
    fn decide(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        max_wait: MaxWait,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        self.query(asks, now, Query::Take(max_wait))
    }

    /// [Peeks](Query::Peek) at all `asks`.
    fn peek(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
        max_wait: MaxWait,
    ) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        self.query(asks, now, Query::Peek(max_wait))
    }

    /// [Refunds](Change::Refund) the answer to `asks`.
    fn refund(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.change(asks, now, Change::Refund(decision))
    }

    /// [Charges](Change::Charge) one ask.
    fn charge(&self, ask: Ask<'_>, now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { self.change(&[ask], now, Change::Charge).await }
    }

    /// [Extends](Change::Extend) the leases of the answer to `asks`.
    fn extend(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.change(asks, now, Change::Extend(decision))
    }

    /// [Resets](Change::Reset) one key.
    fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move { self.change(&[Ask::one(limit, key)], now, Change::Reset).await }
    }

    /// Starts to refund `decision`, the answer to `asks`, for guards that are dropped and cannot wait. The future
    /// completes the refund and returns its result.
    ///
    /// A store that several processes share over a connection should answer every query that starts after this call as
    /// if the refund had been applied. The default starts the refund when the future is first polled.
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

    /// Returns how often the store needs [`Change::Extend`] for permits in use; `None` if they do not expire.
    fn extend_every(&self) -> Option<std::time::Duration> {
        None
    }

    /// Notifies `listener`, while it is alive, when another process [resets](Change::Reset) a key. A store that is not
    /// shared never notifies.
    fn on_reset(&self, listener: Weak<dyn ResetListener>) {
        let _ = listener;
    }

    /// Returns `true` if the decision used this process's own counts because the shared store was unreachable.
    fn is_fallback(&self, decision: &Decision) -> bool {
        let _ = decision;
        false
    }

    /// Reports that this process no longer uses `limit`: its data in this process may be dropped. Shared data is kept.
    fn forget(&self, limit: &Limit) {
        let _ = limit;
    }

    /// Sets the configuration number of limits that are new or change from now on. If several processes share a store,
    /// the highest number wins.
    fn configure(&self, number: u64) {
        let _ = number;
    }
}

/// Notified by a store when [another process has reset a key](Store::on_reset).
pub trait ResetListener: Send + Sync {
    /// Reports that another process has, or may have, reset a key. Must not block.
    fn key_reset(&self);
}

/// A refund that was [started](Store::start_refund).
pub type RefundFuture = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

impl<S: LocalStore> Store for S {
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        Ok(LocalStore::query(self, asks, now, query))
    }

    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        LocalStore::change(self, asks, now, change);
        Ok(())
    }

    fn start_refund(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture
    where
        Self: 'static,
    {
        LocalStore::refund(&**self, asks, decision, now);
        Box::pin(std::future::ready(Ok(())))
    }

    fn forget(&self, limit: &Limit) {
        LocalStore::forget(self, limit);
    }
}

/// Why a store returned no decision. A denial is not an error: it is a decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store was unreachable, so nothing was charged. Use local counts, or retry.
    #[error("store `{store}` is unreachable, nothing was charged: {reason}")]
    Unreachable {
        /// The store.
        store: String,
        /// The connection error.
        reason: String,
    },
    /// The store took too long. Whether it charged is unknown, but it never charges after the deadline.
    #[error("store `{store}` timed out after {after:?}; the request may have been charged")]
    TimedOut {
        /// The store.
        store: String,
        /// The timeout.
        after: std::time::Duration,
    },
    /// The store does not support this limit. Nothing was charged; use another algorithm or another store.
    #[error("store `{store}` does not support limit `{limit}`, nothing was charged: {reason}")]
    Unsupported {
        /// The store.
        store: String,
        /// The limit.
        limit: String,
        /// The reason.
        reason: String,
    },
}
