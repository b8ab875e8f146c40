//! The public store: Redis, with the caches that save round trips and the fallback for outages.

mod across;
mod charge_back;
mod refund;

use crate::client::{Client, Items, Under};
use crate::deny_cache::{Clocks, DenyCache};
use crate::error::{ConnectError, UnsupportedLimitError};
use crate::fallback::{Fallback, Looking};
use crate::invalidation::{self, Invalidation, ResetListeners};
use crate::leases::{Leases, TIDY_EVERY, Which};
use crate::limit_config::LimitConfig;
use crate::link::{CallError, Counted, Link, Target, without_password};
use crate::options::{self, Options, Times};
use crate::releases::Releases;
use crate::request::{Item, Op};
use crate::script_runner::ScriptRunner;
use crate::status::{Health, LinkStatus};
use diana_core::{Ask, Decision, Limit, LimitId, MaxWait, RefundFuture, ResetListener, Store, StoreError, Timestamp};
use parking_lot::Mutex;
use refund::PendingRefund;
use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::runtime::Handle;

/// How a decision was made, which is noted on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MadeBy {
    Redis,
    /// From leased permits.
    Lease,
    /// Without Redis, and [recorded](Fallback::answer) in the fallback under this number.
    LocalCounts(u64),
}

impl MadeBy {
    fn note(self) -> u64 {
        match self {
            Self::Redis => 0,
            Self::Lease => 1,
            Self::LocalCounts(number) => number.saturating_add(2),
        }
    }

    fn noted(decision: &Decision) -> Self {
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
    inner: Arc<Inner>,
}

impl std::fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let redis = self.inner.client.runner.link.shown();
        f.debug_struct("RedisStore").field("redis", &redis).field("link", &self.link()).finish_non_exhaustive()
    }
}

struct Inner {
    client: Arc<Client>,
    fallback: Fallback,
    deny_cache: Option<Arc<DenyCache>>,
    leases: Option<Arc<Leases>>,
    /// Listeners for resets.
    listeners: Arc<ResetListeners>,
    /// Whether the store is subscribed to refunds and resets of other instances.
    listening: AtomicBool,
    releases: Arc<Releases>,
    /// Permits that could not be released yet.
    unreturned: Mutex<VecDeque<PendingRefund>>,
    /// Whether a task that charges owed permits is running.
    settling: AtomicBool,
    times: Times,
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
            // It would be the hash tag of every name, and a cluster would store all of them on one node.
            let reason =
                "`{` and `}` are for the key, by which a cluster shares out the counts; leave them out".to_owned();
            return Err(ConnectError::Prefix { prefix: options.prefix, reason });
        }
        let target = Target::parse(url).map_err(|reason| ConnectError::Url { url: without_password(url), reason })?;
        let instance = RandomState::new().hash_one("instance");
        let link = Link::new(target, &options.prefix, options.timeout, instance);
        if let Err(error) = link.open().await {
            let (url, reason) = (link.shown().to_owned(), error.to_string());
            match error {
                CallError::Refused(_) => return Err(ConnectError::Refused { url, reason }),
                CallError::TooOld(_) => return Err(ConnectError::TooOld { url, reason }),
                _ => tracing::warn!(redis = url, reason, "Redis is unreachable"),
            }
        }
        let runner = ScriptRunner { link, scripts: crate::scripts::Scripts::default(), times: options.times };
        let client = Arc::new(Client::new(runner, &options, instance));
        let clocks = if client.runner.link.is_cluster() { Clocks::Several } else { Clocks::One };
        let deny_cache = (options.deny_cache == options::DenyCache::On).then(|| Arc::new(DenyCache::new(clocks)));
        let leases = Leases::new(&client, options.leases, deny_cache.clone());
        if let Some(leases) = &leases {
            tokio::spawn(tidy_up(Arc::downgrade(leases)));
        }
        let inner = Inner {
            client,
            leases,
            fallback: Fallback::new(options.when_down),
            deny_cache,
            listeners: Arc::default(),
            listening: AtomicBool::new(false),
            releases: Arc::default(),
            unreturned: Mutex::default(),
            settling: AtomicBool::new(false),
            times: options.times,
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
    /// assert!(RedisStore::can_keep(&limit).is_err(), "an idle key would differ from a new one");
    /// # Ok::<(), diana_core::InvalidSmooth>(())
    /// ```
    pub fn can_keep(limit: &Limit) -> Result<(), UnsupportedLimitError> {
        crate::kind::erased(limit).map(drop).map_err(|reason| UnsupportedLimitError { reason })
    }

    /// Returns the status of the link to Redis.
    pub fn link(&self) -> LinkStatus {
        let link = &self.inner.client.runner.link;
        let counters = link.counters();
        LinkStatus {
            health: match link.trouble() {
                None => Health::Healthy,
                Some((since, reason)) => Health::Degraded { since, reason },
            },
            commands: counters.get(Counted::Command),
            waits: counters.get(Counted::Wait),
            saved_by_deny_cache: counters.get(Counted::ByDenyCache),
            saved_by_leases: counters.get(Counted::ByLease),
            saved_by_batching: counters.get(Counted::ByBatching),
            leased: self.inner.leases.as_ref().map_or(0, |leases| leases.held()),
            instances: counters.instances(),
            adopted: self.inner.client.configs.adopted(),
        }
    }

    /// Returns the runtime of the store.
    pub fn runtime(&self) -> &Handle {
        &self.inner.runtime
    }

    /// Returns `true` if a decision was made without Redis, according to [`Options::when_down`].
    pub(crate) fn is_made_here(decision: &Decision) -> bool {
        matches!(MadeBy::noted(decision), MadeBy::LocalCounts(_))
    }

    /// Stores the keys of `limit` for at least `least` after a grant, where its algorithm supports it.
    pub(crate) fn keep_keys(&self, limit: LimitId, least: Duration) {
        self.inner.client.configs.keep_keys(limit, least);
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
            leases.tidy(Which::All).await;
        }
        self.inner.settle_now().await;
    }
}

/// Releases unused blocks periodically, as long as `leases` exists.
async fn tidy_up(leases: Weak<Leases>) {
    loop {
        tokio::time::sleep(TIDY_EVERY).await;
        match leases.upgrade() {
            Some(leases) => leases.tidy(Which::Idle).await,
            None => return,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(leases) = self.leases.take() {
            self.runtime.spawn(async move { leases.tidy(Which::All).await });
        }
    }
}

impl Inner {
    /// Returns the time for local data: this process's clock, or the time that the caller provided.
    fn here(&self, now: Timestamp) -> Timestamp {
        match self.times {
            Times::OfRedis => self.client.runner.link.now(),
            Times::OfCaller => now,
        }
    }

    fn instances(&self) -> u64 {
        self.client.runner.link.counters().instances()
    }

    async fn ask(self: &Arc<Self>, op: Op, items: &mut Items, now: Timestamp) -> Decision {
        if op == Op::Take {
            // Leases first: a block may have been fetched since Redis denied the key.
            if let Some(decision) = self.leases.as_ref().and_then(|leases| leases.spend(&items.items, self.here(now))) {
                return items.spread(&decision).with_note(MadeBy::Lease.note());
            }
            if let Some(decision) = self.remembered(&items.items, now) {
                return items.spread(&decision);
            }
            if let Some(leases) = &self.leases {
                leases.note(&items.items, self.here(now));
            }
        }
        if self.client.is_up(&items.items) {
            let asked = self.deny_cache.as_ref().map(|deny_cache| (deny_cache, deny_cache.asking(self.here(now))));
            let moment = self.client.moment(now);
            // Counted at this place, since blocks that are fetched in the background make no request wait.
            self.client.runner.link.counters().count(Counted::Wait);
            let asked_redis = match self.settle(&items.items, moment).await {
                Ok(()) => self.ask_redis(op, &mut items.items, moment).await,
                Err(error) => Err(error),
            };
            match asked_redis {
                Ok(decision) => {
                    if let Some((deny_cache, asked)) = &asked {
                        deny_cache.learn(&items.items, &decision, asked);
                    }
                    return items.spread(&decision);
                }
                Err(error) => self.complain(&error),
            }
        }
        let looking = if op == Op::Take { Looking::AndTaking } else { Looking::Only };
        let (decision, number) = self.fallback.answer(&items.items, looking, self.instances(), now);
        self.settle_later();
        items.spread(&decision).with_note(MadeBy::LocalCounts(number).note())
    }

    /// Returns the denial of `items`, if Redis is known to deny them.
    fn remembered(&self, items: &[Item], now: Timestamp) -> Option<Decision> {
        let denial = self.deny_cache.as_ref()?.denial(items, self.here(now))?;
        self.client.runner.link.counters().count(Counted::ByDenyCache);
        Some(denial)
    }

    /// Logs the error of a single request; the link logs its own errors.
    fn complain(&self, error: &CallError) {
        if let CallError::Unanswerable(reason) | CallError::NotNow(reason) = error {
            self.client.runner.link.complain(reason);
        }
    }

    /// Starts to listen to refunds and resets of other instances.
    fn listen(&self) {
        if self.listening.swap(true, Ordering::AcqRel) {
            return;
        }
        let erased = invalidation::Listeners {
            deny_cache: self.deny_cache.as_ref().map_or_else(Weak::new, Arc::downgrade),
            leases: self.leases.as_ref().map_or_else(Weak::new, Arc::downgrade),
            listeners: Arc::downgrade(&self.listeners),
        };
        self.runtime.spawn(invalidation::listen(Arc::downgrade(&self.client), erased));
    }

    /// Notifies the other instances of changed keys, in case they have cached a denial or hold leases.
    fn tell(&self, news: Invalidation, names: impl Iterator<Item = Vec<u8>>) {
        // Other instances may listen, whatever this one caches.
        invalidation::tell(&self.client, news, names);
    }

    /// Invalidates a state that changes other than by a granted request.
    fn forget(&self, config: &LimitConfig, name: &[u8]) {
        match &self.deny_cache {
            Some(deny_cache) if config.erased.holds() => deny_cache.forget_released(name),
            Some(deny_cache) => deny_cache.forget(name),
            None => {}
        }
    }
}

impl Store for RedisStore {
    /// Always answers: from Redis, from local data, or according to [`Options::when_down`]. Returns an error only for a
    /// limit that can't be stored on Redis.
    async fn decide(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        let mut items = self.inner.client.items(asks, now, max_wait)?;
        Ok(self.inner.ask(Op::Take, &mut items, now).await)
    }

    async fn peek(&self, asks: &[Ask<'_>], now: Timestamp, max_wait: MaxWait) -> Result<Decision, StoreError> {
        let mut items = self.inner.client.items(asks, now, max_wait)?;
        Ok(self.inner.ask(Op::Peek, &mut items, now).await)
    }

    /// Registers a listener for resets by all instances, including this one; it is also notified when resets may have
    /// been missed because Redis was unreachable.
    fn on_reset(&self, listener: Weak<dyn ResetListener>) {
        self.inner.listeners.add(listener);
        self.inner.listen();
    }

    fn is_fallback(&self, decision: &Decision) -> bool {
        Self::is_made_here(decision)
    }

    /// Refunds to the source of the permits. Returns an error if that was Redis and it is unreachable: then time
    /// refills them.
    async fn refund(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        match self.inner.take_back(asks, decision, now)? {
            Some(returned) => self.inner.hand_in(returned, now).await.map_err(|error| self.failed(&error)),
            None => Ok(()),
        }
    }

    /// The same, started when this returns: later decisions of this process take it into account.
    fn start_refund(self: &Arc<Self>, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> RefundFuture {
        self.spawn_refund(asks, decision, now)
    }

    async fn charge(&self, ask: Ask<'_>, now: Timestamp) -> Result<(), StoreError> {
        let inner = &self.inner;
        let mut items = inner.client.items(&[ask], now, MaxWait::NONE)?;
        let Some(item) = items.items.first_mut() else { return Ok(()) };
        let moment = inner.client.moment(now);
        let done = inner.client.charge(std::slice::from_mut(item), Under::Ours, moment).await;
        inner.forget(&item.config, &item.name);
        if let Err(error) = done {
            inner.complain(&error);
            inner.fallback.charge(item, inner.instances(), now);
            inner.settle_later();
        }
        Ok(())
    }

    /// Resets a key, in this process at once and on Redis. Returns an error if Redis is unreachable: its state is
    /// unchanged then.
    async fn reset(&self, limit: &Limit, key: &[u8], now: Timestamp) -> Result<(), StoreError> {
        let inner = &self.inner;
        let config = inner.client.config(limit)?;
        let name = config.keys.name(key);
        inner.fallback.reset(&config, &name, inner.instances(), now);
        let moment = inner.client.moment(now);
        let done = inner.client.reset(&config, key, moment).await;
        inner.forget(&config, &name);
        if let Some(leases) = &inner.leases {
            leases.forget(&name);
        }
        inner.tell(Invalidation::Reset, std::iter::once(name));
        done.map_err(|error| self.failed(&error))
    }

    /// Extends the permits held by `decision`, the answer to `asks`, for another [`Options::permits_for`]; for work
    /// that takes longer. Permits that are not held, or have been released already, are unchanged.
    async fn extend(&self, asks: &[Ask<'_>], decision: &Decision, now: Timestamp) -> Result<(), StoreError> {
        if !decision.is_granted() || Self::is_made_here(decision) {
            return Ok(());
        }
        let client = &self.inner.client;
        let items = client.items(asks, now, MaxWait::NONE)?;
        let own = items.gather(decision);
        let held = items.items.into_iter().zip(own.answers()).filter(|(item, _)| item.config.erased.holds());
        let held = held.filter_map(|(item, answer)| Some((item.config, item.name, answer.receipt()?)));
        let mut held = held.collect::<Vec<_>>();
        let moment = client.moment(now);
        client.hand_in(Op::Extend, &mut held, Under::Ours, moment).await.map_err(|error| self.failed(&error))
    }

    /// A third of [`Options::permits_for`], so that one call may be lost.
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
    /// with a lower one, which log a line about it. Without numbers each process uses its own.
    fn configure(&self, number: u64) {
        self.inner.client.configs.configure(number);
    }
}

impl RedisStore {
    fn failed(&self, error: &CallError) -> StoreError {
        let store = self.inner.client.runner.link.shown().to_owned();
        match error {
            CallError::TimedOut(after) => StoreError::TimedOut { store, after: *after },
            error => StoreError::Unreachable { store, reason: error.to_string() },
        }
    }
}
