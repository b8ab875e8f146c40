//! Waiting as a future, on tokio's timer.
//!
//! Dropping the future stops waiting: a reservation is refunded (while it is the last one; later ones keep their
//! times), and a queued request leaves its queue.

use super::{QueuedRequest, Source, Step, reserve, with_wait};
use crate::{Answer, Cost, MaxWait, Receipt, Timestamp};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Takes `cost`, and is ready when the permits can be used, or when `max_wait` is not enough for them.
pub(crate) async fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now()).await
}

/// Acquires like [`acquire`] as of `since`, if the algorithm can count from a past time. The wait counts from `since`.
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
        None => join_queue(source, QueuedRequest::new(source, key, cost, since, max_wait)).await,
    };
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Another request may have asked later and been first, so the wait counts from the receipt's time.
    let end = receipt.at().max(since) + wait;
    let reservation = Reservation { source, key, receipt: Some(receipt) };
    sleep_until(source, end).await;
    reservation.keep();
    with_wait(answer, since, end)
}

/// Waits in the queue.
async fn join_queue<S: Source + ?Sized>(source: &S, mut request: QueuedRequest<'_, S>) -> Answer {
    // A request that need not wait needs no timer, and the runtime may have none.
    if let Step::Done(answer) = poll_fn(|context| Poll::Ready(request.poll(context.waker()))).await {
        return answer;
    }
    let mut timer = pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            let end = match request.poll(context.waker()) {
                Step::Done(answer) => return Poll::Ready(answer),
                Step::WaitUntil(end) => end,
            };
            timer.as_mut().reset(tokio_deadline(end.since(source.time().now())));
            if timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

async fn sleep_until<S: Source + ?Sized>(source: &S, end: Timestamp) {
    loop {
        let now = source.time().now();
        if now >= end {
            return;
        }
        tokio::time::sleep_until(tokio_deadline(end.since(now))).await;
    }
}

/// Returns the instant `wait` from now on tokio's clock; at most a month, the maximum of its timer. The waiter checks again.
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
            self.source.refund_unused(self.key, receipt);
        }
    }
}
