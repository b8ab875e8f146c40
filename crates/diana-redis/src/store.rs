//! The public store: Redis, with the caches that save round trips and the fallback for outages.

mod ask_after_releases;
mod cl_throttle;
mod cross_slot;
mod refund;
mod resync;

use crate::algorithms;
use crate::deny_cache::{Clocks, StateCache};
use crate::direct_store::{DirectStore, Items, ParameterSource};
use crate::fallback::Fallback;
use crate::invalidation::{self, Invalidation};
use crate::invalidation_listener::{self, ResetListeners};
use crate::leases::{LeasePools, RELEASE_EVERY, ReleaseScope};
use crate::limit_config_versions::LimitConfig;
use crate::link::{CallError, Counter, Link, Target, without_password};
use crate::options::{self, Options, TimeSource};
use crate::releases::Releases;
use crate::script_call::{Item, Op};
use crate::script_runner::ScriptRunner;
use crate::scripts::Scripts;
use crate::setup_error::{ConnectError, UnsupportedLimitError};
use crate::status::{Health, LinkStatus};
use cl_throttle::LocalDebts;
use diana_core::{
    Ask, Change, Decision, Limit, LimitId, MaxWait, Query, RefundFuture, ResetListener, Store, StoreError, Timestamp,
};
use parking_lot::Mutex;
use refund::PendingRefund;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// The source of a decision, stored in its note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecidedBy {
    Redis,
    /// Leased permits decided.
    Lease,
    /// Local counts decided, and the fallback [recorded](Fallback::answer) it under this number.
    LocalCounts(u64),
}

impl DecidedBy {
    fn note(self) -> u64 {
        match self {
            Self::Redis => 0,
            Self::Lease => 1,
            Self::LocalCounts(number) => number.saturating_add(2),
        }
    }

    fn of(decision: &Decision) -> Self {
        match decision.note() {
            0 => Self::Redis,
            1 => Self::Lease,
            note => Self::LocalCounts(note - 2),
        }
    }
}

/// Counts that many processes share, on Redis.
///
/// Cloning is cheap; clones share their state. The store must be created and used within a tokio runtime.
///
/// ```no_run
/// use diana_core::{Ask, Clock, Limit, MaxWait, Quota, Store, SystemClock, TokenBucket};
/// use diana_redis::{Options, RedisStore};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379", Options::default()).await?;
/// let limit = Limit::new("each-account", TokenBucket::new(Quota::per_second(100)?));
///
/// let now = SystemClock.now();
/// let decision = store.decide(&[Ask::one(&limit, "alice")], now, MaxWait::NONE).await?;
/// assert!(decision.is_granted());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<RedisStoreInner>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let redis = self.inner.client.runner.link.redacted();
        f.debug_struct("RedisStore").field("redis", &redis).field("link", &self.link()).finish_non_exhaustive()
    }
}

struct RedisStoreInner {
    client: Arc<DirectStore>,
    fallback: Fallback,
    deny_cache: Option<Arc<StateCache>>,
    leases: Option<Arc<LeasePools>>,
    /// Listeners for resets.
    listeners: Arc<ResetListeners>,
    /// Whether the store is subscribed to refunds and resets of other instances.
    listening: AtomicBool,
    releases: Arc<Releases>,
    /// Permits that could not be released yet.
    pending_releases: Mutex<VecDeque<PendingRefund>>,
    /// Whether the resync task is running.
    resyncing: AtomicBool,
    /// The debts of `CL.THROTTLE` keys in this process, for outages.
    cl_throttle_debts: LocalDebts,
    when_down: options::WhenDown,
    times: TimeSource,
    runtime: Handle,
}

impl RedisStore {
    /// Connects to the Redis at `url`: `redis://`, `rediss://` (TLS), `redis+cluster://HOST:PORT,HOST:PORT` or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`.
    ///
    /// An unreachable Redis is not an error, since a gateway must start during an outage too: requests are answered
    /// according to [`Options::when_down`] until it is reachable. Permanent problems are errors: an invalid URL, a
    /// prefix with `{` or `}`, a wrong password, a Redis before 6.2.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        if options.prefix.contains(['{', '}']) {
            // Braces of a prefix would be the hash tag of every name, and a cluster would store all of them on one node.
            let reason = "`{` and `}` are reserved for the key, the hash tag of a cluster; remove them".to_owned();
            return Err(ConnectError::Prefix { prefix: options.prefix, reason });
        }
        let target = Target::parse(url).map_err(|reason| ConnectError::Url { url: without_password(url), reason })?;
        let instance = RandomState::new().hash_one("instance");
        let link = Link::new(target, &options.prefix, options.timeout, instance);
        if let Err(error) = link.open().await {
            let (url, reason) = (link.redacted().to_owned(), error.to_string());
            match error {
                CallError::AccessDenied(_) => return Err(ConnectError::AccessDenied { url, reason }),
                CallError::UnsupportedVersion(_) => return Err(ConnectError::UnsupportedVersion { url, reason }),
                // The link has logged it.
                _ => {}
            }
        }
        let runner = ScriptRunner { link, scripts: Scripts::new(algorithms::modules()), times: options.time_source };
        let client = Arc::new(DirectStore::new(runner, &options, instance));
        let clocks = if client.runner.link.is_cluster() { Clocks::Several } else { Clocks::One };
        let deny_cache = (options.deny_cache == options::DenyCache::On).then(|| Arc::new(StateCache::new(clocks)));
        let leases = LeasePools::new(&client, options.leases, deny_cache.clone());
        if let Some(leases) = &leases {
            tokio::spawn(release_periodically(Arc::downgrade(leases)));
        }
        let inner = RedisStoreInner {
            client,
            leases,
            fallback: Fallback::new(options.when_down),
            deny_cache,
            listeners: Arc::default(),
            listening: AtomicBool::new(false),
            releases: Arc::default(),
            pending_releases: Mutex::default(),
            resyncing: AtomicBool::new(false),
            cl_throttle_debts: LocalDebts::default(),
            when_down: options.when_down,
            times: options.time_source,
            runtime: Handle::current(),
        };
        if inner.deny_cache.is_some() || inner.leases.is_some() {
            inner.listen();
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Checks whether Redis can store `limit`.
    ///
    /// ```
    /// use diana_core::{Limit, SmoothBursty, InitialPermits};
    /// use diana_redis::RedisStore;
    ///
    /// let limit = Limit::new("a", SmoothBursty::new(5.0)?.with_initial_permits(InitialPermits::Empty));
    /// assert!(RedisStore::check_limit(&limit).is_err(), "an idle key would differ from a new one");
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn check_limit(limit: &Limit) -> Result<(), UnsupportedLimitError> {
        algorithms::scripted_algorithm(limit).map(drop).map_err(|reason| UnsupportedLimitError { reason })
    }

    /// Returns the status of the link to Redis.
    pub fn link(&self) -> LinkStatus {
        let link = &self.inner.client.runner.link;
        let counters = link.counters();
        LinkStatus {
            health: match link.outage() {
                None => Health::Healthy,
                Some((since, reason)) => Health::Degraded { since, reason },
            },
            commands: counters.get(Counter::Command),
            waits: counters.get(Counter::Wait),
            saved_by_deny_cache: counters.get(Counter::SavedByDenyCache),
            saved_by_leases: counters.get(Counter::SavedByLease),
            saved_by_batching: counters.get(Counter::SavedByBatching),
            leased: self.inner.leases.as_ref().map_or(0, |leases| leases.leased()),
            instances: counters.instances(),
            clock_difference: counters.clock_difference(),
            adopted: self.inner.client.configs.adopted(),
        }
    }

    /// Returns the runtime of the store.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Returns `true` if a decision was made without Redis, according to [`Options::when_down`].
    pub(crate) fn is_local(decision: &Decision) -> bool {
        matches!(DecidedBy::of(decision), DecidedBy::LocalCounts(_))
    }

    /// Stores the keys of `limit` for at least `min_expiry` after a grant, where its algorithm supports it.
    pub(crate) fn set_min_expiry(&self, limit: LimitId, min_expiry: Duration) {
        self.inner.client.configs.set_min_expiry(limit, min_expiry);
    }

    /// Returns how long permits are held.
    pub(crate) fn permits_for(&self) -> Duration {
        self.inner.client.permits_for
    }

    /// Releases leased permits, so that other instances can use them at once, and waits for that: for the end of a
    /// program. A dropped store does this in the background if its runtime still runs. Otherwise a bucket's lease ends
    /// within a second, a window's with its window, and a total's never.
    ///
    /// Pending releases and owed permits are also sent if Redis is reachable: for as long as a request would wait for
    /// it, and a second at most.
    pub async fn close(self) {
        if let Some(leases) = &self.inner.leases {
            leases.release_blocks(ReleaseScope::All).await;
        }
        self.inner.resync_now().await;
    }
}

/// Releases unused blocks periodically, as long as `leases` exists.
async fn release_periodically(leases: Weak<LeasePools>) {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        match leases.upgrade() {
            Some(leases) => leases.release_blocks(ReleaseScope::Idle).await,
            None => return,
        }
    }
}

impl Drop for RedisStoreInner {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.take() {
            self.runtime.spawn(async move { leases.release_blocks(ReleaseScope::All).await });
        }
    }
}

impl RedisStoreInner {
    /// Returns the time for local data: this process's clock, or the time that the caller provided.
    fn local_now(&self, now: Timestamp) -> Timestamp {
        match self.times {
            TimeSource::Redis | TimeSource::Local => self.client.runner.link.now(),
            TimeSource::Caller => now,
        }
    }

    fn instances(&self) -> u64 {
        self.client.runner.link.counters().instances()
    }

    async fn ask(self: &Arc<Self>, op: Op, items: &mut Items, now: Timestamp) -> Decision {
        if op == Op::Take {
            // Leases first: a block may have been fetched since Redis denied the key.
            if let Some(decision) =
                self.leases.as_ref().and_then(|leases| leases.spend(&items.items, self.local_now(now)))
            {
                return items.spread(&decision).with_note(DecidedBy::Lease.note());
            }
            if let Some(decision) = self.cached_denial(&items.items, now) {
                return items.spread(&decision);
            }
            if let Some(leases) = &self.leases {
                leases.record_query(&items.items, self.local_now(now));
            }
        }
        if self.client.is_up(&items.items) {
            let query =
                self.deny_cache.as_ref().map(|deny_cache| (deny_cache, deny_cache.begin_query(self.local_now(now))));
            let context = self.client.context(now);
            // Counted here and not by the link: blocks that are fetched in the background make no request wait.
            self.client.runner.link.counters().count(Counter::Wait);
            let result = match self.charge_debts_of(&items.items, context).await {
                Ok(()) => self.ask_redis(op, &mut items.items, context).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(decision) => {
                    if let Some((deny_cache, query)) = &query {
                        deny_cache.learn(&items.items, &decision, query);
                    }
                    return items.spread(&decision);
                }
                Err(error) => self.warn_undecided(&error),
            }
        }
        let (decision, number) = self.fallback.answer(&items.items, op, self.instances(), now);
        self.resync_later();
        items.spread(&decision).with_note(DecidedBy::LocalCounts(number).note())
    }

    /// Returns the denial of `items`, if Redis is known to deny them.
    fn cached_denial(&self, items: &[Item], now: Timestamp) -> Option<Decision> {
        let denial = self.deny_cache.as_ref()?.denial(items, self.local_now(now))?;
        self.client.runner.link.counters().count(Counter::SavedByDenyCache);
        Some(denial)
    }

    /// Logs the error of a single request; the link logs its own errors.
    fn warn_undecided(&self, error: &CallError) {
        if let CallError::Unanswerable(reason) | CallError::Transient(reason) = error {
            self.client.runner.link.warn_undecided(reason);
        }
    }

    /// Starts to listen to refunds and resets of other instances.
    fn listen(&self) {
        if self.listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let listeners = invalidation_listener::Listeners {
            deny_cache: self.deny_cache.as_ref().map_or_else(Weak::new, Arc::downgrade),
            leases: self.leases.as_ref().map_or_else(Weak::new, Arc::downgrade),
            listeners: Arc::downgrade(&self.listeners),
        };
        self.runtime.spawn(invalidation_listener::listen(Arc::downgrade(&self.client), listeners));
    }

    /// Notifies the other instances of changed keys, in case they have cached a denial or hold leases.
    fn publish(&self, invalidation: Invalidation, names: impl Iterator<Item = Vec<u8>>) {
        // Other instances may listen, even if this one caches nothing.
        invalidation::publish(&self.client, invalidation, names);
    }

    /// Invalidates a state that changes other than by a granted request.
    fn invalidate(&self, config: &LimitConfig, name: &[u8]) {
        match &self.deny_cache {
            Some(deny_cache) if config.algorithm.holds() => deny_cache.invalidate_released(name),
            Some(deny_cache) => deny_cache.invalidate(name),
            None => {}
        }
    }
}

impl Store for RedisStore {
    /// Always answers: from Redis, from local data, or according to [`Options::when_down`]. Returns an error only for a
    /// limit that can't be stored on Redis. In an outage with local counts, this process grants its share of the rate
    /// and burst of a `CL.THROTTLE` call.
    async fn query(&self, asks: &[Ask<'_>], now: Timestamp, query: Query<'_>) -> Result<Decision, StoreError> {
        let (op, max_wait) = match query {
            Query::Take(max_wait) => (Op::Take, max_wait),
            Query::Peek(max_wait) => (Op::Peek, max_wait),
            Query::ClThrottle(call) => {
                let mut answers = Vec::with_capacity(asks.len());
                for ask in asks {
                    answers.push(self.inner.cl_throttle(ask.limit, ask.key, call, now).await?);
                }
                return Ok(Decision::new(answers));
            }
        };
        let mut items = self.inner.client.items(asks, now, max_wait)?;
        Ok(self.inner.ask(op, &mut items, now).await)
    }

    /// - A refund goes to the source of the permits; it is an error if that was Redis and it is unreachable: then time
    ///   refills them.
    /// - A charge is counted by this process while Redis is unreachable.
    /// - An extension lasts another [`Options::permits_for`].
    /// - A reset applies in this process at once; it is an error if Redis is unreachable: its state is unchanged then.
    async fn change(&self, asks: &[Ask<'_>], now: Timestamp, change: Change<'_>) -> Result<(), StoreError> {
        let inner = &self.inner;
        match change {
            Change::Refund(decision) => match inner.prepare_refund(asks, decision, now)? {
                Some(refund) => inner.refund_on_redis(refund, now).await.map_err(|error| self.store_error(&error)),
                None => Ok(()),
            },
            Change::Charge => {
                for item in &mut inner.client.items(asks, now, MaxWait::NONE)?.items {
                    inner.charge(item, now).await;
                }
                Ok(())
            }
            Change::Extend(decision) => {
                inner.extend(asks, decision, now).await?.map_err(|error| self.store_error(&error))
            }
            Change::Reset => {
                for ask in asks {
                    let done = inner.reset(ask.limit, ask.key, now).await?;
                    done.map_err(|error| self.store_error(&error))?;
                }
                Ok(())
            }
        }
    }

    /// Registers a listener for resets by all instances, including this one; it is also notified when resets may have
    /// been missed because Redis was unreachable.
    fn on_reset(&self, listener: Weak<dyn ResetListener>) {
        self.inner.listeners.add(listener);
        self.inner.listen();
    }

    fn is_fallback(&self, decision: &Decision) -> bool {
        Self::is_local(decision)
    }

    /// Starts the refund before it returns: later decisions of this process take it into account.
    fn start_refund(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture {
        self.spawn_refund(asks, decision, now)
    }

    /// Returns a third of [`Options::permits_for`], so that one call may be lost.
    fn extend_every(&self) -> Option<Duration> {
        Some(self.permits_for() / 3)
    }

    /// Removes the config of a limit that is no longer used. Its counts stay.
    fn forget(&self, limit: &Limit) {
        self.inner.client.configs.forget(limit.id());
        self.inner.fallback.forget(limit.id());
    }

    /// Sets the number of the configuration for limits that are new or change from now on; default 0.
    ///
    /// While a new configuration is rolled out, some processes still have the old one. Where configurations are
    /// numbered, the highest number that a key has seen applies to all processes that share the limit, also to those
    /// with a lower one, which log this. Without numbers each process uses its own.
    fn configure(&self, number: u64) {
        self.inner.client.configs.configure(number);
    }
}

impl RedisStoreInner {
    /// Charges one item: on Redis, or in this process while Redis is unreachable.
    async fn charge(self: &Arc<Self>, item: &mut Item, now: Timestamp) {
        let context = self.client.context(now);
        let done = self.client.charge(std::slice::from_mut(item), ParameterSource::Own, context).await;
        self.invalidate(&item.config, &item.name);
        if let Err(error) = done {
            self.warn_undecided(&error);
            self.fallback.charge(item, self.instances(), now);
            self.resync_later();
        }
    }

    /// Extends the permits of a decision that Redis holds.
    async fn extend(
        &self,
        asks: &[Ask<'_>],
        decision: &Decision,
        now: Timestamp,
    ) -> Result<Result<(), CallError>, StoreError> {
        if !decision.is_granted() || RedisStore::is_local(decision) {
            return Ok(Ok(()));
        }
        let items = self.client.items(asks, now, MaxWait::NONE)?;
        let gathered = items.gather(decision);
        let held = items.items.into_iter().zip(gathered.answers()).filter(|(item, _)| item.config.algorithm.holds());
        let held = held.filter_map(|(item, answer)| Some((item.config, item.name, answer.receipt()?)));
        let mut held = held.collect::<Vec<_>>();
        Ok(self.client.apply_receipts(Op::Extend, &mut held, ParameterSource::Own, self.client.context(now)).await)
    }

    /// Resets a key in this process and on Redis.
    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<Result<(), CallError>, StoreError> {
        let config = self.client.config(limit)?;
        let name = config.keys.name(key);
        self.fallback.reset(&config, &name, self.instances(), now);
        let done = self.client.reset(&config, key, self.client.context(now)).await;
        self.invalidate(&config, &name);
        if let Some(leases) = &self.leases {
            leases.drop_blocks(&name);
        }
        self.publish(Invalidation::Reset, std::iter::once(name));
        Ok(done)
    }
}

impl RedisStore {
    fn store_error(&self, error: &CallError) -> StoreError {
        let store = self.inner.client.runner.link.redacted().to_owned();
        match error {
            CallError::TimedOut(after) => StoreError::TimedOut { store, after: *after },
            error => StoreError::Unreachable { store, reason: error.to_string() },
        }
    }
}
