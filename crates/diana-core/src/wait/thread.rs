//! Waiting as a blocked thread.

use super::{QueuedRequest, Source, Step, reserve, with_wait};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, MaxWait, Timestamp};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when `max_wait` is not enough for them.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now())
}

/// Acquires like [`acquire`] as of `since`, if the algorithm can count from a past time. The wait counts from `since`.
pub(crate) fn acquire_since<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    max_wait: MaxWait,
    since: Timestamp,
) -> Answer {
    let since = since.min(source.time().now());
    let reserved = reserve(source, key, cost, since, max_wait);
    let answer = reserved.unwrap_or_else(|| join_queue(source, QueuedRequest::new(source, key, cost, since, max_wait)));
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Another request may have asked later and been first, so the wait counts from the receipt's time.
    let end = receipt.at().max(since) + wait;
    sleep_until(source, end);
    with_wait(answer, since, end)
}

/// Waits in the queue.
fn join_queue<S: Source + ?Sized>(source: &S, mut request: QueuedRequest<'_, S>) -> Answer {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match request.poll(&waker) {
            Step::Done(answer) => return answer,
            Step::WaitUntil(end) => source.time().park(end.since(source.time().now())),
        }
    }
}

fn sleep_until<S: Source + ?Sized>(source: &S, end: Timestamp) {
    loop {
        let now = source.time().now();
        if now >= end {
            return;
        }
        source.time().park(end.since(now));
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
