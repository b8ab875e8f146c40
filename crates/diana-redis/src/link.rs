//! The link to Redis: the connection, a timeout for whole requests, and a breaker.
//!
//! A request has one [`Budget`] for all of its calls to Redis. When it is used up, or the connection fails, the called
//! part of Redis is *down*, and receives no more calls until the [reconnect task](reconnect) has written to it in time.

mod breaker;
mod clock_offset;
mod connection;
mod counters;
mod error;
mod instances;
mod log_throttle;
mod outage_log;
mod redact;
mod target;
mod upkeep;

use crate::key::slot;
use breaker::{Breaker, Outage, part_of, probes};
use connection::Connection;
pub(crate) use counters::{Counter, Counters};
use diana_core::{Clock, SystemClock, Timestamp};
pub(crate) use error::CallError;
use futures_util::Stream;
use log_throttle::LogThrottle;
use parking_lot::{Mutex, RwLock};
pub(crate) use redact::without_password;
use redis::{Cmd, Msg, RedisError, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
pub(crate) use target::Target;
use tokio::sync::Notify;

/// The timeout of a new connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(300);
/// The timeout of a connection to a whole cluster: leaves each node the same time, even if one hangs.
const CLUSTER_CONNECT_TIMEOUT: Duration = Duration::from_millis(900);
/// The timeout of the whole first connection, which delays only the startup.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(1);

/// The link to Redis. Clones share the connection, which is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    inner: Arc<LinkInner>,
}

pub(crate) struct LinkInner {
    target: Target,
    prefix: String,
    timeout: Duration,
    instance: u64,
    clock: SystemClock,
    connection: RwLock<Option<Connection>>,
    breakers: Box<[Breaker]>,
    /// Since when a part is down, which has been logged. Locked while a part is taken down or brought up, so that the
    /// log has one line for the beginning of an outage and one for its end, however many parts are affected.
    outage: Mutex<Option<Timestamp>>,
    /// On a cluster: one key name in each part.
    probes: Vec<String>,
    counters: Counters,
    /// Wakes the reconnect task.
    wake: Arc<Notify>,
    jitter: AtomicU64,
    log_throttle: LogThrottle,
}

impl std::fmt::Debug for LinkInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("target", &self.target).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Until when a request may wait for Redis, over all of its calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// When it began, by this process's clock.
    pub(crate) began: Timestamp,
    until: tokio::time::Instant,
}

impl Budget {
    /// Returns the budget that ends later.
    pub(crate) fn later(self, other: Self) -> Self {
        if other.until > self.until { other } else { self }
    }

    /// Returns `true` if the two budgets end within `span` of each other.
    pub(crate) fn is_near(self, other: Self, span: Duration) -> bool {
        self.until.max(other.until) - self.until.min(other.until) <= span
    }

    /// Returns `true` if the budget is used up.
    pub(crate) fn is_over(self) -> bool {
        tokio::time::Instant::now() >= self.until
    }

    /// Returns the output of `future` if it completes within the budget.
    pub(crate) async fn wait_for<T>(self, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.until, future).await.ok()
    }
}

impl Link {
    /// Creates a link that is down until [`open`](Self::open) connects it.
    pub(crate) fn new(target: Target, prefix: &str, timeout: Duration, instance: u64) -> Self {
        let probes = if target.is_cluster() { probes(prefix) } else { Vec::new() };
        let clock = SystemClock;
        let breakers = (0..probes.len().max(1)).map(|_| Breaker::default()).collect::<Box<[_]>>();
        for breaker in &breakers {
            breaker.take_down(0, Outage { since: clock.now(), reason: "not connected yet".to_owned() });
        }
        let inner = Arc::new(LinkInner {
            target,
            prefix: prefix.to_owned(),
            timeout,
            instance,
            clock,
            connection: RwLock::default(),
            breakers,
            outage: Mutex::default(),
            probes,
            counters: Counters::default(),
            wake: Arc::default(),
            jitter: AtomicU64::new(instance | 1),
            log_throttle: LogThrottle::default(),
        });
        Self { inner }
    }

    /// Connects for the first time, and starts the reconnect task.
    pub(crate) async fn open(&self) -> Result<(), CallError> {
        let opened = tokio::time::timeout(STARTUP_TIMEOUT, self.first_connection()).await;
        let opened = opened.unwrap_or(Err(CallError::TimedOut(STARTUP_TIMEOUT)));
        if let Err(error) = &opened {
            for breaker in &self.inner.breakers {
                breaker.explain(&error.to_string());
            }
        }
        // Before the reconnect task may restore it.
        if let Err(error) = &opened
            && !error.is_permanent()
        {
            let inner = &self.inner;
            inner.log_outage(&mut inner.outage.lock(), inner.clock.now(), &error.to_string());
        }
        tokio::spawn(upkeep::run(Arc::downgrade(&self.inner)));
        opened
    }

    async fn first_connection(&self) -> Result<(), CallError> {
        let inner = &self.inner;
        let mut connection = inner.target.connect(STARTUP_TIMEOUT).await?;
        check_version(&mut connection).await?;
        upkeep::announce(inner, &mut connection).await?;
        inner.install(&connection);
        for breaker in &inner.breakers {
            breaker.bring_up();
        }
        Ok(())
    }

    /// Returns the budget of a request that starts now.
    pub(crate) fn budget(&self) -> Budget {
        let inner = &self.inner;
        Budget { began: inner.clock.now(), until: tokio::time::Instant::now() + inner.timeout }
    }

    /// Returns the budget of a call, starting now, for requests with the budget `waiting`: at least seven eighths of
    /// the timeout, since the time that they have waited so far is not evidence about Redis. Requests that have waited
    /// for less than an eighth count as new, and time out together with the call.
    pub(crate) fn budget_of_call(&self, waiting: Budget) -> Budget {
        let fresh = self.budget();
        waiting.later(Budget { until: fresh.until - self.batch_window(), ..fresh })
    }

    /// Returns an eighth of the timeout: requests that arrive within it are batched together.
    pub(crate) fn batch_window(&self) -> Duration {
        self.inner.timeout / 8
    }

    /// Returns the first eighth of a budget.
    pub(crate) fn batch_window_of(&self, budget: Budget) -> Budget {
        Budget { until: budget.until - (self.inner.timeout - self.batch_window()), ..budget }
    }

    /// Returns `true` if the first eighth of a budget has passed.
    pub(crate) fn has_waited(&self, budget: Budget) -> bool {
        tokio::time::Instant::now() >= self.batch_window_of(budget).until
    }

    /// Returns the time of this process's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Returns the part of Redis that stores this name.
    pub(crate) fn part(&self, name: &[u8]) -> usize {
        if self.is_cluster() { part_of(slot(name)) } else { 0 }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.inner.target.is_cluster()
    }

    /// Returns `true` if this part of Redis is up.
    pub(crate) fn is_up(&self, part: usize) -> bool {
        self.inner.breakers.get(part).is_some_and(|breaker| breaker.up().is_some())
    }

    /// Calls a part of Redis. If there is no answer within the budget, the part is down from then on.
    ///
    /// Except if more than half of the budget was used up before this call: then it had so little time left that a
    /// Redis at its normal speed could not have answered.
    pub(crate) async fn call(&self, part: usize, cmd: &Cmd, budget: Budget) -> Result<Value, CallError> {
        let inner = &self.inner;
        let breaker = inner.breakers.get(part).ok_or(CallError::Open)?;
        let generation = breaker.up().ok_or(CallError::Open)?;
        let mut connection = inner.connection().ok_or(CallError::Open)?;
        inner.counters.count(Counter::Command);
        let has_time = budget.until.saturating_duration_since(tokio::time::Instant::now()) >= inner.timeout / 2;
        let error = match tokio::time::timeout_at(budget.until, connection.send(cmd)).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => CallError::from(error),
            Err(_) if !has_time => return Err(CallError::TimedOut(inner.timeout)),
            Err(_) => CallError::TimedOut(inner.timeout),
        };
        if error.is_outage() {
            inner.take_down(breaker, generation, &error.to_string());
        }
        Err(error)
    }

    /// Returns the maximum time that a request waits for Redis.
    pub(crate) fn timeout(&self) -> Duration {
        self.inner.timeout
    }

    /// Returns the error of a request that timed out.
    pub(crate) fn timed_out(&self) -> CallError {
        CallError::TimedOut(self.inner.timeout)
    }

    /// Returns the end of a budget in Redis's time, in microseconds, if that is known.
    pub(crate) fn deadline(&self, part: usize, budget: Budget) -> Option<u64> {
        self.inner.breakers.get(part)?.offset.redis_micros(budget.began + self.inner.timeout)
    }

    /// Returns the time of that part of Redis in microseconds, if it is known well enough.
    pub(crate) fn redis_time(&self, part: usize) -> Option<u64> {
        self.inner.breakers.get(part)?.offset.recent_redis_micros(self.inner.clock.now())
    }

    /// Updates the clock offset from a reply that has just arrived.
    pub(crate) fn learn(&self, part: usize, redis_micros: u64) {
        if let Some(breaker) = self.inner.breakers.get(part) {
            self.inner.learn(breaker, redis_micros);
        }
    }

    /// Subscribes to a channel over a separate connection.
    pub(crate) async fn subscribe(&self, channel: &str) -> Result<impl Stream<Item = Msg> + use<>, RedisError> {
        let mut listener = self.inner.target.listener(CONNECT_TIMEOUT).await?;
        listener.subscribe(channel).await?;
        Ok(listener.into_on_message())
    }

    /// Returns the part that stores data of no key.
    pub(crate) fn registry_part(&self) -> usize {
        self.inner.registry_index()
    }

    /// Logs why a request was decided without Redis; throttles repeated messages.
    pub(crate) fn warn_undecided(&self, reason: &str) {
        self.inner.warn_throttled(reason, "request decided without Redis");
    }

    /// Logs why a refund failed, throttled: an outage affects many requests.
    pub(crate) fn warn_refund_failed(&self, reason: &str) {
        self.inner.warn_throttled(reason, "unused permits could not be refunded on Redis; time refills them");
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    /// Returns since when a part is down and why, if one is.
    pub(crate) fn outage(&self) -> Option<(Timestamp, String)> {
        let first = self.inner.breakers.iter().filter_map(Breaker::outage).min_by_key(|outage| outage.since);
        first.map(|outage| (outage.since, outage.reason))
    }

    /// Returns the URL without its password.
    pub(crate) fn redacted(&self) -> &str {
        self.inner.target.redacted()
    }
}

impl LinkInner {
    fn registry_index(&self) -> usize {
        if self.target.is_cluster() { part_of(slot(format!("{}:instances", self.prefix).as_bytes())) } else { 0 }
    }

    /// Returns the part in which the instances are registered.
    fn registry_breaker(&self) -> &Breaker {
        self.breakers.get(self.registry_index()).unwrap_or_else(|| unreachable!("every slot has a part"))
    }

    fn is_all_up(&self) -> bool {
        self.breakers.iter().all(|breaker| breaker.up().is_some())
    }

    /// Opens a new connection, to test the parts that are down.
    async fn connect(&self) -> Result<Connection, RedisError> {
        let within = if self.target.is_cluster() { CLUSTER_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT };
        self.target.connect(within).await
    }

    fn connection(&self) -> Option<Connection> {
        self.connection.read().clone()
    }

    fn install(&self, connection: &Connection) {
        *self.connection.write() = Some(connection.clone());
    }

    /// Compares the clocks by a reply that has just arrived, to a command that was sent at `began`.
    fn watch_clocks(&self, breaker: &Breaker, redis_micros: u64, began: Timestamp) {
        let now = self.clock.now();
        let difference = breaker.offset.difference(redis_micros, now, now.since(began));
        self.counters.set_clock_difference(difference);
        if difference > clock_offset::MAX_DIFFERENCE {
            let reason = format!("one of them was set, or runs {difference:?} a second differently");
            self.warn_throttled(&reason, "the clocks of Redis and this process differ");
        }
    }

    fn learn(&self, breaker: &Breaker, redis_micros: u64) {
        breaker.offset.learn(redis_micros, self.clock.now());
    }

    /// Returns a factor from 0.5 to 1, so that instances don't reconnect all at once.
    fn jitter(&self) -> f64 {
        // SplitMix64 by Steele, Lea and Flood, which is sufficient for jitter.
        let z = self.jitter.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
        0.5 + f64::from(share) / f64::from(u32::MAX) / 2.0
    }
}

/// Returns an error unless Redis is at least 6.2, which has `SET` with `PXAT`.
async fn check_version(connection: &mut Connection) -> Result<(), CallError> {
    let mut cmd = redis::cmd("INFO");
    cmd.arg("server");
    let info: String = match connection {
        Connection::One(connection) => cmd.query_async(connection).await?,
        Connection::Cluster(connection) => {
            let route =
                redis::cluster_routing::RoutingInfo::SingleNode(redis::cluster_routing::SingleNodeRoutingInfo::Random);
            let info = connection.route_command(cmd, route).await?;
            redis::from_redis_value(info).map_err(RedisError::from)?
        }
    };
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("").trim();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if (major, minor) >= (6, 2) {
        return Ok(());
    }
    Err(CallError::UnsupportedVersion(format!("Redis {version} is not supported; expected 6.2 or later")))
}
