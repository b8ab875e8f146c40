//! Waiting as a future, on tokio's timer.
//!
//! Dropping the future stops waiting: a reservation is refunded (while it is the last one; later ones keep their
//! times), and a place in the queue is released.

use super::{Source, Step, Turn, reserve, waited};
use crate::clock::Clock;
use crate::{Answer, Cost, MaxWait, Receipt, Timestamp};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Takes `cost`, and is ready when the permits can be used, or when `max_wait` is not enough for them.
pub(crate) async fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now()).await
}

/// [`acquire`] as of `since`, if the algorithm can look back. The wait counts from `since`.
pub(crate) async fn acquire_since<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    max_wait: MaxWait,
    since: Timestamp,
) -> Answer {
    let since = since.min(source.time().now());
    let answer = match reserve(source, key, cost, since, max_wait) {
        Some(answer) => answer,
        None => join_queue(source, Turn::new(source, key, cost, since, max_wait)).await,
    };
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Another request may have asked later and been first, so the wait counts from the receipt's time.
    let then = receipt.at().max(since) + wait;
    let reservation = Reservation { source, key, receipt: Some(receipt) };
    sleep_until(source, then).await;
    reservation.keep();
    waited(answer, since, then)
}

/// Waits in the queue.
async fn join_queue<S: Source + ?Sized>(source: &S, mut turn: Turn<'_, S>) -> Answer {
    // A request that need not wait needs no timer, and the runtime may have none.
    if let Step::Done(answer) = poll_fn(|context| Poll::Ready(turn.poll(context.waker()))).await {
        return answer;
    }
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            let then = match turn.poll(context.waker()) {
                Step::Done(answer) => return Poll::Ready(answer),
                Step::WaitUntil(then) => then,
            };
            timer.as_mut().reset(tokio_deadline(then.since(source.time().now())));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

async fn sleep_until<S: Source + ?Sized>(source: &S, then: Timestamp) {
    loop {
        let now = source.time().now();
        if now >= then {
            return;
        }
        tokio::time::sleep_until(tokio_deadline(then.since(now))).await;
    }
}

/// The instant `wait` from now on tokio's clock; at most a month, the maximum of its timer. The waiter checks again.
fn tokio_deadline(wait: Duration) -> tokio::time::Instant {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    tokio::time::Instant::now() + wait.min(MONTH)
}

/// Permits reserved for later, refunded if the future is dropped.
struct Reservation<'a, S: Source + ?Sized> {
    source: &'a S,
    key: u64,
    receipt: Option<Receipt>,
}

impl<S: Source + ?Sized> Reservation<'_, S> {
    fn keep(mut self) {
        self.receipt = None;
    }
}

impl<S: Source + ?Sized> Drop for Reservation<'_, S> {
    fn drop(&mut self) {
        if let Some(receipt) = &self.receipt {
            self.source.give_back(self.key, receipt);
        }
    }
}

/// Tokio's clock, which tests can pause: time then advances only when every task waits.
///
/// It starts at the system clock's time of its creation.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    began: Timestamp,
}

impl TokioClock {
    /// Creates a clock that starts now.
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now(), began: crate::SystemClock.now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.began + self.origin.elapsed()
    }
}
