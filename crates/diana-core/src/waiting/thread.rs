//! Waiting as a thread.

use super::{Source, Step, Turn, until};
use crate::sync::thread::{self, Thread};
use crate::{Answer, Cost, Patience, Waiting};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// Takes `cost`, and returns when the permits can be used, or when they can't be had within `patience`.
pub(crate) fn acquire<S: Source + ?Sized>(source: &S, key: u64, cost: Cost, patience: Patience) -> Answer {
    match source.waiting() {
        Waiting::Reserves => {
            let began = source.time().now();
            let answer = source.take(key, began, cost, patience);
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
            answer
        }
        Waiting::Queues => {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut turn = Turn::new(source, key, cost, patience);
            loop {
                match turn.poll(&waker) {
                    Step::Done(answer) => return answer,
                    Step::WaitUntil(then) => source.time().park(until(then, source.time().now())),
                }
            }
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
