//! What a limit is: quotas, algorithms, clock, decisions, and the in-process store.
//!
//! No I/O, no async runtime, no unsafe.

mod algorithm;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cost;
mod decision;
mod keyed;
mod limit;
mod limiter;
mod outcome;
mod patience;
mod quota;
mod store;
mod sync;
mod time;
mod waiting;

#[cfg(feature = "calendar")]
pub use algorithm::Calendar;
#[doc(hidden)]
pub use algorithm::OneWord;
pub use algorithm::{
    Algorithm, Concurrency, FixedWindow, FixedWindowState, InvalidSmooth, InvalidWindow, LeakyBucket, MAX_BUCKETS,
    MinInterval, Opens, RefillingBucket, RefillingState, SlidingLog, SlidingLogState, SlidingWindow,
    SlidingWindowState, SmoothBursty, SmoothPrice, SmoothRate, SmoothState, SmoothWarmingUp, Starts, TokenBucket,
    Total, Waiting,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cost::{Cost, InvalidCost, MAX_PERMITS};
pub use decision::Decision;
pub use keyed::{InFlight, KeyedLimiter};
pub use limit::{Limit, LimitId};
pub use limiter::Limiter;
pub use outcome::{Answer, Outcome, Receipt, Refund, Retry, Standing};
pub use patience::Patience;
pub use quota::{InvalidQuota, Quota};
pub use store::memory::{MemoryStore, TableOptions};
pub use store::table::OnFull;
pub use store::{Ask, LocalStore, Store, StoreError};
pub use time::Timestamp;
#[cfg(feature = "async")]
pub use waiting::future::TokioClock;
