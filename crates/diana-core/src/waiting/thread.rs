//! Waiting as a blocked thread.

use super::{Source, Step, Turn, reserve, waited};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, MaxWait, Timestamp};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when `max_wait` is not enough for them.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now())
}

/// [`acquire`] as of `since`, if the algorithm can look back. The wait counts from `since`.
pub(crate) fn acquire_since<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    max_wait: MaxWait,
    since: Timestamp,
) -> Answer {
    let since = since.min(source.time().now());
    let reserved = reserve(source, key, cost, since, max_wait);
    let answer = reserved.unwrap_or_else(|| join_queue(source, Turn::new(source, key, cost, since, max_wait)));
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Another request may have asked later and been first, so the wait counts from the receipt's time.
    let then = receipt.at().max(since) + wait;
    sleep_until(source, then);
    waited(answer, since, then)
}

/// Waits in the queue.
fn join_queue<S: Source + ?Sized>(source: &S, mut turn: Turn<'_, S>) -> Answer {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match turn.poll(&waker) {
            Step::Done(answer) => return answer,
            Step::WaitUntil(then) => source.time().park(then.since(source.time().now())),
        }
    }
}

fn sleep_until<S: Source + ?Sized>(source: &S, then: Timestamp) {
    loop {
        let now = source.time().now();
        if now >= then {
            return;
        }
        source.time().park(then.since(now));
    }
}

/// Unparks a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
