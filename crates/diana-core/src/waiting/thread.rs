//! Waiting as a thread.

use super::{Source, Step, Turn, reserve, until};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, Patience};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when they can't be had within `patience`.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, patience: Patience) -> Answer {
    if let Some((began, answer)) = reserve(source, key, cost, patience) {
        if let Some(wait) = answer.wait() {
            let then = began + wait;
            loop {
                let now = source.time().now();
                if now >= then {
                    break;
                }
                source.time().park(until(then, now));
            }
        }
        return answer;
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut turn = Turn::new(source, key, cost, patience);
    loop {
        match turn.poll(&waker) {
            Step::Done(answer) => return answer,
            Step::WaitUntil(then) => source.time().park(until(then, source.time().now())),
        }
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
