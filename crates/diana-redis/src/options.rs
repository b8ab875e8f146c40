//! The options of the store.

use std::time::Duration;

/// The options of the store: the timeout, the behaviour during an outage, and which round trips to save.
///
/// ```
/// use diana_redis::{Batching, Leases, Options, WhenDown};
/// use std::time::Duration;
///
/// let options = Options::default()
///     .prefix("shop")
///     .timeout(Duration::from_millis(10))
///     .when_down(WhenDown::Deny)
///     .leases(Leases::Auto)
///     .batching(Batching::Off);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) prefix: String,
    pub(crate) timeout: Duration,
    pub(crate) time_source: TimeSource,
    pub(crate) when_down: WhenDown,
    pub(crate) deny_cache: DenyCache,
    pub(crate) leases: Leases,
    pub(crate) batching: Batching,
    pub(crate) permits_for: Duration,
}

/// Which clock is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeSource {
    /// Redis's clock, for all processes that share it.
    #[default]
    Redis,
    /// This process's clock, set by Redis's each second, so that scripts need not ask for the time. All processes agree up to the
    /// latency of a reply. A difference of more than 10 ms is logged, and the clock is set anew. A script that Redis runs late can't
    /// know that, so it is charged although its request has timed out.
    Local,
    /// The caller's clock: each request provides the time. For tests that control the time. Keys expire after an hour.
    Caller,
}

/// The answer while Redis is unreachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenDown {
    /// Each instance uses its own counts, with the limit divided by the number of instances last seen alive (at least
    /// 1). The granted permits are charged when Redis is reachable again, as far as they are still in use.
    #[default]
    Local,
    /// Each instance uses its own counts, with the whole limit: so together they grant up to the limit for each instance. Their
    /// grants are charged likewise.
    LocalFull,
    /// Every request is granted.
    Allow,
    /// Every request is denied.
    Deny,
}

impl WhenDown {
    /// Returns `true` if this process counts while Redis is unreachable.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Self::Local | Self::LocalFull)
    }

    /// Returns the number of shares into which `instances` divide a limit.
    pub(crate) fn shares(self, instances: u64) -> u64 {
        if self == Self::LocalFull { 1 } else { instances }
    }
}

/// Whether denials are cached: then a request is denied without a round trip if the last known states of all its limits
/// imply it, with the report that Redis would return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DenyCache {
    /// Denials are cached for a second at most. A refund or reset invalidates the entry.
    #[default]
    On,
    /// Each request queries Redis.
    Off,
}

/// Whether busy keys lease blocks of permits, to spend them without a round trip.
///
/// Supported by token buckets, fixed windows and totals. Leased permits count as used, so all instances together never
/// exceed the limit; but the other instances can't use permits that one instance has leased and does not spend, for
/// about a second. Permits that a crashed process had leased from a window are lost until the window ends, and from a
/// total permanently. A reset also revokes the leases of other instances when they receive the message, shortly
/// afterwards. A request over several limits is answered without a round trip only if this process has a block for each
/// of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leases {
    /// Keys lease no permits.
    #[default]
    Off,
    /// Busy keys lease the permits that they use in about a tenth of a second.
    Auto,
    /// Keys with more than one request per second lease this number of permits at a time.
    Of(u64),
}

/// Whether concurrent requests are batched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// Requests that arrive while a call is in flight are sent as one call.
    #[default]
    On,
    /// Each request is sent separately, at once.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "diana".to_owned(),
            timeout: Duration::from_millis(20),
            time_source: TimeSource::default(),
            when_down: WhenDown::default(),
            deny_cache: DenyCache::default(),
            leases: Leases::default(),
            batching: Batching::default(),
            permits_for: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// Sets the prefix of all key names; default `diana`. Processes that share limits need the same prefix. It can't
    /// contain `{` or `}`, which would put all keys of a cluster on one node.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// Sets the maximum time that a request waits for Redis; default 20 ms.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets which clock is used; default Redis's.
    #[must_use]
    pub fn time_source(self, time_source: TimeSource) -> Self {
        Self { time_source, ..self }
    }

    /// Sets the answer while Redis is unreachable; default local counts.
    #[must_use]
    pub fn when_down(self, when_down: WhenDown) -> Self {
        Self { when_down, ..self }
    }

    /// Sets whether denials are cached; default on.
    #[must_use]
    pub fn deny_cache(self, deny_cache: DenyCache) -> Self {
        Self { deny_cache, ..self }
    }

    /// Sets whether busy keys lease blocks of permits; default off.
    #[must_use]
    pub fn leases(self, leases: Leases) -> Self {
        Self { leases, ..self }
    }

    /// Sets whether concurrent requests are batched; default on.
    #[must_use]
    pub fn batching(self, batching: Batching) -> Self {
        Self { batching, ..self }
    }

    /// Sets the maximum time for which a permit of a [`Concurrency`](diana_core::Concurrency) limit is held; default
    /// one minute. Permits of a crashed gateway are released after that. Longer work must extend them in time
    /// ([`Store::extend`](diana_core::Store::extend)), as a [`SharedPermit`](crate::SharedPermit) does automatically,
    /// or they are no longer counted.
    #[must_use]
    pub fn permits_for(self, permits_for: Duration) -> Self {
        Self { permits_for: permits_for.max(Duration::from_millis(1)), ..self }
    }
}
