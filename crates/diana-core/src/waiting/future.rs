//! Waiting as a future, on tokio's timer.
//!
//! Dropping the future stops the waiting: a reservation is given back (while it is the last one; those behind it keep
//! their times), a place in line goes to the next.

use super::{Source, Step, Turn, reserve, waited};
use crate::clock::Clock;
use crate::{Answer, Cost, MaxWait, Receipt, Timestamp};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Takes `cost`, and is ready when the permits can be used, or when they can't be had within `max_wait`.
pub(crate) async fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now()).await
}

/// The same, where the algorithm can look back, as if asked at `since`. The wait counts from there.
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
        None => stand_in_line(source, Turn::new(source, key, cost, since, max_wait)).await,
    };
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Others may have asked later and been first, so the receipt says from when on the wait counts.
    let then = receipt.at().max(since) + wait;
    let reservation = Reservation { source, key, receipt: Some(receipt) };
    sleep_until(source, then).await;
    reservation.keep();
    waited(answer, since, then)
}

/// Waits for its turn.
async fn stand_in_line<S: Source + ?Sized>(source: &S, mut turn: Turn<'_, S>) -> Answer {
    // Who need not wait needs no timer either, and a runtime may have none.
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

/// The moment `wait` from now on tokio's clock; a month at most, since its timer takes no more. Whoever waits looks again.
fn tokio_deadline(wait: Duration) -> tokio::time::Instant {
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
    tokio::time::Instant::now() + wait.min(MONTH)
}

/// Permits that were promised for later, and go back if nobody comes for them.
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

/// Tokio's clock, which tests can pause: time then moves only when every task waits.
///
/// It counts from the moment at which it is made, and stands at the time that the system's clock showed then.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
    began: Timestamp,
}

impl TokioClock {
    /// A clock that runs from now on.
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
