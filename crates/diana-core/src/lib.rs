//! What a limit is: quotas, algorithms, clock, decisions, and the in-process store.
//!
//! No I/O, no async runtime, no unsafe.

mod algorithm;
mod clock;
mod cost;
mod outcome;
mod patience;
mod quota;
mod sync;
mod time;

#[cfg(feature = "calendar")]
pub use algorithm::Calendar;
pub use algorithm::{
    Algorithm, FixedWindow, FixedWindowState, InvalidWindow, MAX_BUCKETS, Opens, RefillingBucket, RefillingState,
    SlidingLog, SlidingLogState, SlidingWindow, SlidingWindowState, TokenBucket, Waiting,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use cost::{Cost, InvalidCost, MAX_PERMITS};
pub use outcome::{Answer, Outcome, Receipt, Refund, Retry, Standing};
pub use patience::Patience;
pub use quota::{InvalidQuota, Quota};
pub use time::Timestamp;
