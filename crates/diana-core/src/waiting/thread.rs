//! Waiting as a thread.

use super::{Source, Step, Turn, reserve, waited};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, Patience, Timestamp};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when they can't be had within `patience`.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, patience: Patience) -> Answer {
    let began = source.time().now();
    let (answer, taken) = match reserve(source, key, cost, began, patience) {
        Some(answer) => (answer, began),
        None => stand_in_line(source, Turn::new(source, key, cost, began, patience)),
    };
    let Some(wait) = answer.wait() else { return answer };
    let then = taken + wait;
    sleep_until(source, then);
    waited(answer, began, then)
}

/// Waits for its turn; the answer, and when it was given.
fn stand_in_line<S: Source + ?Sized>(source: &S, mut turn: Turn<'_, S>) -> (Answer, Timestamp) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match turn.poll(&waker) {
            Step::Done(answer, at) => return (answer, at),
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
