//! How the store is set up.

use std::time::Duration;

/// How the store is set up: how long it waits for Redis, what it does without, and which trips it spares.
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
    pub(crate) times: Times,
    pub(crate) when_down: WhenDown,
    pub(crate) deny_cache: DenyCache,
    pub(crate) leases: Leases,
    pub(crate) batching: Batching,
    pub(crate) permits_for: Duration,
}

/// Whose clock counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Redis's, for all who share it.
    #[default]
    OfRedis,
    /// The caller's, who hands it in with each request: for tests, which own the time. Keys live for an hour.
    OfCaller,
}

/// What is answered while Redis is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// Each instance goes by counts of its own, with the limit divided by the instances last seen alive (at least 1). What they
    /// granted is charged when Redis is back, as far as it is still in use.
    #[default]
    Local,
    /// Everything is granted.
    Allow,
    /// Everything is denied.
    Deny,
}

/// Whether denials are remembered: then a request is denied without asking if the last known states of all its limits say so,
/// with the report that Redis would give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyCache {
    /// For a second at most. A refund or reset makes Diana forget it.
    #[default]
    On,
    /// Redis is asked each time.
    Off,
}

/// Whether busy keys take blocks of permits, to spend them without asking.
///
/// Token buckets, fixed windows and totals can. What is out on lease is counted as used, so the limit holds over all
/// instances at every moment; but what one instance holds and does not use, the others can't use either, for a second or
/// so. What a process that crashed had on lease from a window is gone with the window, and from a total for good. A reset
/// takes what others hold on lease along when they hear of it, a moment later. A request over several limits is answered without asking only if all of them have a block here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leases {
    /// None.
    #[default]
    Off,
    /// What a busy key uses in about a tenth of a second.
    Auto,
    /// So many permits at a time, for keys that are asked for more than once a second.
    Of(u64),
}

/// Whether the requests of one moment travel together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// Those that come while others are under way go as one.
    #[default]
    On,
    /// Each goes on its own, at once.
    Off,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            prefix: "diana".to_owned(),
            timeout: Duration::from_millis(20),
            times: Times::default(),
            when_down: WhenDown::default(),
            deny_cache: DenyCache::default(),
            leases: Leases::default(),
            batching: Batching::default(),
            permits_for: Duration::from_secs(60),
        }
    }
}

impl Options {
    /// What the names of all keys begin with, `diana` unless you say otherwise. Those who share limits have the same. It can't
    /// have `{` or `}`, which would put all keys of a cluster on one node.
    #[must_use]
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..self }
    }

    /// How long a request waits for Redis at most, 20 ms unless you say otherwise.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Whose clock counts: Redis's unless you say otherwise.
    #[must_use]
    pub fn times(self, times: Times) -> Self {
        Self { times, ..self }
    }

    /// What is answered while Redis is away: by local counts, unless you say otherwise.
    #[must_use]
    pub fn when_down(self, when_down: WhenDown) -> Self {
        Self { when_down, ..self }
    }

    /// Whether refusals are remembered, as they are unless you say otherwise.
    #[must_use]
    pub fn deny_cache(self, deny_cache: DenyCache) -> Self {
        Self { deny_cache, ..self }
    }

    /// Whether busy keys take blocks of permits. They don't unless you say so.
    #[must_use]
    pub fn leases(self, leases: Leases) -> Self {
        Self { leases, ..self }
    }

    /// Whether the requests of one moment travel together, as they do unless you say otherwise.
    #[must_use]
    pub fn batching(self, batching: Batching) -> Self {
        Self { batching, ..self }
    }

    /// For how long a permit of a [`Concurrency`](diana_core::Concurrency) limit is held at most, a minute unless you say
    /// otherwise: what a crashed gateway held comes back after that. What takes longer must say so in time
    /// ([`Store::extend`](diana_core::Store::extend)), as a [`SharedPermit`](crate::Held) does by itself, or is no longer counted.
    #[must_use]
    pub fn permits_for(self, permits_for: Duration) -> Self {
        Self { permits_for: permits_for.max(Duration::from_millis(1)), ..self }
    }
}
