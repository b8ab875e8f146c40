//! Paces streams, queues and bytes at an even rate.
//!
//! | to pace | use |
//! |---|---|
//! | a stream, such as the consumer of a message queue | [`StreamExt::rate_limited`] |
//! | a sink | [`SinkExt::rate_limited`] |
//! | an iterator, on a thread that may block | [`IteratorExt::rate_limited`] |
//! | bytes: tokio's `AsyncRead` and `AsyncWrite`, `std::io::Read` and `Write` | [`Throttled`] |
//!
//! Each takes a [`Limiter`](crate::Limiter), or an `Arc` of one: all users of the same `Arc` share one budget. A
//! quota's burst passes immediately, and the rest evenly; with a burst of 1 everything is even. Streams, sinks and iterators also take
//! a rule of the rule file, or a limit that several processes share: see [`PaceLimiter`].
//!
//! # How it works
//! An item is taken from its source first; then permits are acquired for it, immediately or by waiting for a
//! reservation; then it passes. So an idle queue holds no permit. A task that stops polling while it waits keeps its
//! reservation and finds the item ready.
//!
//! Evenness refers to grants. A late wake-up does not reduce the rate: grants of the last 50 ms that were missed are
//! used immediately. So a rate of 10,000/s with a burst of 1 is reached on a millisecond timer, with ten items at a time.
//!
//! # What always holds (tests/it/pace*.rs)
//! - Everything passes, in order, once.
//! - In every span `t` at most `burst + rate × t` are granted, over all that share a limiter, and at most
//!   `burst + rate × (t + 50 ms)` pass: a grant is used immediately, or up to 50 ms late. (One item or chunk of each
//!   user that was not polled in time may be later than that.)
//! - Users of a shared limiter take turns.
//! - No item is too large. An item that costs more than the capacity is paid for in instalments, and passes after the
//!   last one: it is delayed in proportion to its size. (It passes at once, so that instant exceeds the burst; the rate
//!   is kept.)
//! - A limit that will never grant again (an exhausted [`Total`](crate::Total)) is not waited for: a stream or an
//!   iterator ends, a sink, a reader or a writer fails with [`Exhausted`].
//! - Dropping a waiting user refunds its reservation, unless there are later reservations. Earlier instalments stay
//!   paid.
//!
//! A [`Concurrency`](crate::Concurrency) limit does not fit here, since nothing releases its permits after an
//! item passed.

mod acquire_until_granted;
mod chunk;
mod item_permits;
mod iterator;
mod lag;
mod paced_permits;
mod sink;
mod stream;
mod throttled;

pub use acquire_until_granted::Exhausted;
pub use item_permits::PaceLimiter;
pub use iterator::{IteratorExt, PacedIterator};
pub use sink::{PacedSink, SinkError, SinkExt};
pub use stream::{PacedStream, StreamExt};
pub use throttled::Throttled;

/// Returns the default cost of an item.
fn unit_cost<T>(_: &T) -> u64 {
    1
}
