//! Waiting as a thread.

use super::{Source, Step, Turn, reserve, waited};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, MaxWait, Timestamp};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when they can't be had within `max_wait`.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, max_wait: MaxWait) -> Answer {
    acquire_since(source, key, cost, max_wait, source.time().now())
}

/// The same, where the algorithm can look back, as if asked at `since`. The wait counts from there.
pub(crate) fn acquire_since<S: Source + ?Sized>(
    source: &S,
    key: u64,
    cost: Cost,
    max_wait: MaxWait,
    since: Timestamp,
) -> Answer {
    let since = since.min(source.time().now());
    let reserved = reserve(source, key, cost, since, max_wait);
    let answer = reserved.unwrap_or_else(|| stand_in_line(source, Turn::new(source, key, cost, since, max_wait)));
    let (Some(wait), Some(receipt)) = (answer.wait(), answer.receipt()) else { return answer };
    // Others may have asked later and been first, so the receipt says from when on the wait counts.
    let then = receipt.at().max(since) + wait;
    sleep_until(source, then);
    waited(answer, since, then)
}

/// Waits for its turn.
fn stand_in_line<S: Source + ?Sized>(source: &S, mut turn: Turn<'_, S>) -> Answer {
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

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
