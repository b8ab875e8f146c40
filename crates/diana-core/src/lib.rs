//! Quotas, algorithms, clocks, decisions, and the in-process store.
//!
//! No I/O, no async runtime, no unsafe.
//!
//! # Where to start
//! - One limit: [`Limiter`]. One limit for each key: [`KeyedLimiter`]. A cap on concurrent use: [`ConcurrencyLimiter`],
//!   and with the resources themselves: [`Pool`].
//! - Rate and burst: [`Quota`], which parses `100/s` and `5/10min`.
//! - How to limit: [`TokenBucket`] by default; the other [`Algorithm`]s are listed below.
//! - Several limits for one request, all or nothing: [`LimitSet`]; with several keys [`Limit`], [`Ask`], [`MemoryStore`].
//! - Your own algorithm: [`Algorithm`]. Your own store: [`Store`] or [`LocalStore`].
//!
//! Everything is at the root; the modules list what belongs together.
//!
//! ```
//! use diana_core::{KeyedLimiter, Quota, SlidingWindow};
//!
//! let logins = KeyedLimiter::with_algorithm(SlidingWindow::new("5/10min".parse::<Quota>()?));
//! for attempt in 1..=6 {
//!     let answer = logins.check("alice");
//!     assert_eq!(answer.is_granted(), attempt <= 5);
//! }
//! # Ok::<(), diana_core::InvalidQuota>(())
//! ```
//!
//! # Results
//! An [`Outcome`] is granted (at once or after a wait) or denied (until a time or permanently). A [`Status`] has the
//! limit, the remaining permits and the time until the reset. An [`Answer`] is both; a [`Decision`] contains the
//! answers of several limits. Waiting returns a [`Grant`], or an [`AcquireError`] if the request was denied. A grant
//! can be refunded with its [`Receipt`].
//!
//! # Features
//! - `calendar` (default): windows of calendar days, weeks and months in a time zone.
//! - `async`: waiting as futures, on tokio's timer.
//! - `conformance`: the behaviour suite that every store must pass.

mod acquire_result;
pub mod algorithm;
mod answer;
mod clock;
mod concurrency_limiter;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cost;
mod decision;
mod keyed;
mod limit_set;
mod limiter;
mod max_wait;
#[cfg(feature = "async")]
mod permit_source;
mod pool;
mod quota;
pub mod store;
mod sync;
mod time;
pub mod wait;
pub mod words;

pub use acquire_result::{AcquireError, Grant};
#[cfg(feature = "calendar")]
pub use algorithm::Calendar;
pub use algorithm::{
    Adaptive, AdaptiveState, Algorithm, BucketState, ClThrottle, ClThrottleError, Concurrency, ConcurrencyState, Edge,
    FixedWindow, FixedWindowState, Gradient2State, InitialPermits, IntervalState, InvalidSmooth, InvalidWindow,
    LeakyBucket, LeakyBucketState, MAX_BUCKETS, MinInterval, Properties, RefillingBucket, RefillingState, Restores,
    Sample, SampleKind, SlidingLog, SlidingLogState, SlidingWindow, SlidingWindowState, SmoothBursty, SmoothPrice,
    SmoothRate, SmoothState, SmoothWarmingUp, TimeDebt, TimeDebtState, TokenBucket, Total, TotalState, WaitMode,
    WindowStart,
};
pub use answer::{Answer, Outcome, Receipt, Refund, Retry, Status};
#[cfg(feature = "async")]
pub use clock::TokioClock;
pub use clock::{Clock, ManualClock, SystemClock};
pub use concurrency_limiter::{ConcurrencyLimiter, ConcurrencyPermit, PermitError};
pub use cost::{Cost, InvalidCost, MAX_PERMITS};
pub use decision::Decision;
pub use keyed::{KeyedLimiter, KeyedPermit};
pub use limit_set::{LimitSet, LimitSetPermit};
pub use limiter::Limiter;
pub use max_wait::MaxWait;
#[cfg(feature = "async")]
pub use permit_source::{BoxFuture, PermitSource, RateSource, SourceError, SourcePermit, TakeError};
pub use pool::{Pool, PoolError, Pooled};
pub use quota::{InvalidQuota, Quota, parse_duration};
pub use store::{
    Ask, Change, DynAlgorithm, HashSecret, InvalidSavedKeys, KeyUsage, Limit, LimitId, LimitIdHasher, LocalStore,
    MemoryBound, MemoryStore, OnFull, Query, RefundFuture, ResetListener, Store, StoreError, TableOptions,
    saved_key_count,
};
pub use time::Timestamp;
pub use wait::WaitQueues;
