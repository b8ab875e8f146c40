//! Streams, queues and bytes at an even rate.
//!
//! | what | how |
//! |---|---|
//! | a stream, such as the consumer of a message queue | [`StreamExt::rate_limited`] |
//! | a sink | [`SinkExt::rate_limited`] |
//! | an iterator, on a thread that may block | [`IteratorExt::rate_limited`] |
//! | bytes: tokio's `AsyncRead` and `AsyncWrite`, `std::io::Read` and `Write` | [`Throttled`] |
//!
//! Each takes a [`Limiter`](crate::core::Limiter), or an `Arc` of one: whatever has a clone of the same `Arc` shares one
//! budget. A quota's burst passes at once, and the rest evenly; with a burst of 1 all of it is even.
//!
//! # How it works
//! An item is taken from its source first; then permits are taken for it, at once or by a reservation that is waited for; then
//! it passes. So an idle queue holds no permit. Whoever stops polling while it waits keeps its place and finds the item ready.
//!
//! What is even is what is granted. Whoever is woken late loses nothing of the rate by it: the turns that came meanwhile are
//! used at once, those of the last 50 ms. So a rate of 10,000/s with a burst of 1 holds on a timer that counts milliseconds,
//! ten at a time.
//!
//! # What always holds (tests/it/pace*.rs)
//! - Everything passes, in order, once.
//! - In every span `t` at most `burst + rate × t` are granted, over all that share a limiter, and at most
//!   `burst + rate × (t + 50 ms)` pass: a turn is used as soon as it comes, or up to 50 ms late. (One item or piece of each
//!   that was not polled in time may be later than that.)
//! - Those who share a limiter take turns.
//! - Nothing is too large. An item that costs more than the capacity is paid for in instalments, and passes when the last is
//!   paid: it is late by as much as it is large. (It passes in one instant, so that instant exceeds the burst; the rate it
//!   keeps.)
//! - A limit that will never grant again (a [`Total`](crate::core::Total) that is used up) is not waited for: a stream or an
//!   iterator ends, a sink, a reader or a writer fails with [`Exhausted`].
//! - Whatever is dropped while it waits gives back the reservation, if nobody was promised a time behind it. Instalments that
//!   were paid before stay paid.
//!
//! What passes gives nothing back, so a limit of [`Concurrency`](crate::core::Concurrency), which only gets its permits back from
//! those who hold them, does not fit here.

mod acquire;
mod chunk;
mod iterator;
mod lag;
mod payer;
mod sink;
mod stream;
mod throttled;

pub use acquire::Exhausted;
pub use iterator::{IteratorExt, PacedIterator};
pub use sink::{PacedSink, SinkError, SinkExt};
pub use stream::{PacedStream, StreamExt};
pub use throttled::Throttled;

/// What an item costs unless somebody says otherwise.
fn one<T>(_: &T) -> u64 {
    1
}
