//! Diana: rate limiting by rules, with counts in this process or shared on Redis.
//!
//! # Where to begin
//! - Rules in a file, one decision for each request: `Engine` (feature `rules`).
//! - One limit in code: [`Limiter`], [`KeyedLimiter`], [`ConcurrencyLimiter`]; and with the resources themselves [`Pool`].
//!   Several limits for one request, all or nothing: [`LimitSet`].
//! - Streams, queues and bytes at an even rate: `pace` (feature `pace`).
//! - A limit on a function: `#[rate_limit]`, `#[count_limit]` and the module `limited` (feature `macros`); by a rule
//!   of a file `#[limited]` (with feature `rules`).
//! - Watched files and config servers: `config` (feature `sources`).
//! - Counts shared by many processes: `redis` (feature `redis`).
//!
//! # Features
//! | feature | what it adds |
//! |---|---|
//! | `wait` (default) | waiting as futures on tokio's timer |
//! | `calendar` | windows of calendar days, weeks and months |
//! | `macros` | attributes for functions; `quota!`, whose text the compiler checks |
//! | `pace` | paced streams, sinks, iterators, readers and writers |
//! | `rules` | the rule file (`rules`) and the engine |
//! | `sources` | rules from a watched file and from a config server; includes `rules` |
//! | `redis` | limits that many processes share |
//!
//! # By rules
//! ```
//! use diana::rules::{Attribute, Attributes, Document, Registry, RuleFile};
//! use diana::Engine;
//! use std::borrow::Cow;
//!
//! struct Call<'a> {
//!     account: &'a str,
//! }
//!
//! impl Attributes for Call<'_> {
//!     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
//!         matches!(attribute, Attribute::Named(name) if &**name == "account").then_some(Cow::Borrowed(self.account))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), diana::rules::Problems> {
//! let file = Document::new("diana.yaml", "rules: [{name: each-account, by: account, limit: 2/h}]");
//! let engine = Engine::new(&RuleFile::read(&file, &Registry::default())?);
//!
//! assert!(engine.acquire(&Call { account: "alice" }).await.is_ok());
//! assert!(engine.acquire(&Call { account: "alice" }).await.is_ok());
//! let denial = engine.acquire(&Call { account: "alice" }).await.unwrap_err();
//! assert_eq!(denial.to_string(), "denied by `each-account` for alice: 0 of 2 left, retry after 30min");
//! assert!(engine.acquire(&Call { account: "bob" }).await.is_ok());
//! # Ok(())
//! # }
//! ```

#[cfg(all(feature = "redis", feature = "rules"))]
mod connect_redis;
#[cfg(any(feature = "macros", feature = "rules"))]
mod duration_text;
#[cfg(feature = "rules")]
mod engine;
#[cfg(feature = "macros")]
pub mod limited;
#[cfg(feature = "rules")]
mod overload;
#[cfg(feature = "pace")]
pub mod pace;
#[cfg(feature = "sources")]
mod reload;
#[cfg(feature = "rules")]
pub mod ruleset;

#[cfg(all(feature = "redis", feature = "rules"))]
pub use connect_redis::connect;
#[cfg(feature = "sources")]
pub use diana_config as config;
#[cfg(feature = "calendar")]
pub use diana_core::Calendar;
pub use diana_core::{
    AcquireError, Adaptive, Answer, ClThrottle, ClThrottleError, Clock, Concurrency, ConcurrencyLimiter,
    ConcurrencyPermit, Cost, FixedWindow, Grant, InitialPermits, InvalidCost, InvalidQuota, KeyedLimiter, KeyedPermit,
    LeakyBucket, LimitSet, LimitSetPermit, Limiter, ManualClock, MaxWait, MinInterval, OnFull, Outcome, PermitError,
    Pool, PoolError, Pooled, Quota, Receipt, RefillingBucket, Refund, Retry, SlidingLog, SlidingWindow, SmoothBursty,
    SmoothWarmingUp, Status, SystemClock, TableOptions, Timestamp, TokenBucket, Total, WindowStart, parse_duration,
};
#[cfg(feature = "wait")]
pub use diana_core::{BoxFuture, PermitSource, RateSource, SourceError, SourcePermit, TakeError, TokioClock};
pub use diana_core::{algorithm, store};
#[cfg(feature = "macros")]
#[doc = include_str!("limited/count_limit.md")]
pub use diana_macros::count_limit;
#[cfg(feature = "macros")]
#[doc = include_str!("limited/limited.md")]
pub use diana_macros::limited;
#[cfg(feature = "macros")]
#[doc = include_str!("quota.md")]
pub use diana_macros::quota;
#[cfg(feature = "macros")]
#[doc = include_str!("limited/rate_limit.md")]
pub use diana_macros::rate_limit;
#[cfg(feature = "redis")]
pub use diana_redis as redis;
#[cfg(feature = "rules")]
pub use diana_rules as rules;
#[cfg(feature = "rules")]
pub use engine::{
    AcquireFuture, ActualCost, CheckedLimit, ClThrottleFuture, ClThrottleNow, DecideMode, Denial, Engine,
    EngineOptions, Explanation, KeyAdminError, KeyChange, KeyOperation, KeySpace, KeyStatus, LimitStatus, LimitedBy,
    LimitsGuard, LoggedRequest, PermissionExplanation, Permit, Reason, ResponseClass, RuleExplanation, RuleLimiter,
    Snapshot, SnapshotError, SnapshotSize, Verdict, WeakEngine,
};
#[cfg(feature = "macros")]
pub use limited::Limited;
#[cfg(feature = "rules")]
pub use overload::LoadMeter;
#[cfg(feature = "sources")]
pub use reload::Reloader;
#[cfg(feature = "rules")]
pub use ruleset::RuleSet;

/// Returns a registry with the file extensions of the enabled features: the check for algorithms that Redis does not
/// support, and the section `remote`.
///
/// ```
/// let registry = diana::registry();
/// assert!(registry.algorithms().any(|name| name == "token_bucket"));
/// ```
#[cfg(feature = "rules")]
pub fn registry() -> rules::Registry {
    #[cfg_attr(not(any(feature = "redis", feature = "sources")), expect(unused_mut, reason = "nothing is added"))]
    let mut registry = rules::Registry::default();
    #[cfg(feature = "redis")]
    registry.shared_by(redis::RedisStore::check_limit);
    #[cfg(feature = "sources")]
    registry.section::<config::RemoteSection>();
    registry
}

/// Runs the code of the README and of the pages of `docs` as doctests.
#[cfg(all(doctest, feature = "macros", feature = "pace", feature = "redis", feature = "rules"))]
mod pages {
    #[doc = include_str!("../../../docs/tasks/share-limits.md")]
    struct ShareLimits;

    #[doc = include_str!("../../../docs/coming-from/bucket4j.md")]
    struct ComingFromBucket4j;
    #[doc = include_str!("../../../docs/coming-from/governor.md")]
    struct ComingFromGovernor;
    #[doc = include_str!("../../../docs/coming-from/guava.md")]
    struct ComingFromGuava;
    #[doc = include_str!("../../../docs/coming-from/nginx.md")]
    struct ComingFromNginx;
    #[doc = include_str!("../../../docs/coming-from/sentinel.md")]
    struct ComingFromSentinel;
    #[doc = include_str!("../../../docs/tasks/on-your-functions.md")]
    struct OnYourFunctions;
    #[doc = include_str!("../../../docs/tasks/streams.md")]
    struct Streams;
    #[doc = include_str!("../../../docs/tasks/pools.md")]
    struct Pools;
    #[doc = include_str!("../../../docs/reference/library.md")]
    struct Library;
    #[doc = include_str!("../../../README.md")]
    struct Readme;
}
