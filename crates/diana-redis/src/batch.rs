//! The requests of one moment in one round trip.
//!
//! While a script call is under way, requests that come gather; when it is back, all of them go as one call. Under little
//! load that is one request at a time, which waits for nobody; the more come at once, the more each call carries, and the
//! less each of them costs Redis.

use crate::caller::{Caller, Moment};
use crate::link::{Budget, CallError, Counted};
use crate::request::{Op, Request, Timing};
use diana_core::Timestamp;
use parking_lot::Mutex;
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The most requests in one call: a script holds up all others while it runs, some 5 µs a request.
const MOST: usize = 64;
/// How many calls are under way at once: one on Redis, and one on its way.
const CALLS: usize = 2;
/// The most requests that wait for a call. Beyond that Redis can't keep up, and those who come are told so.
const LONGEST: usize = 65_536;

/// What became of a request, and when.
type Answered = Result<(Timestamp, Value), CallError>;

/// Requests on their way to one Redis.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    caller: Arc<Caller>,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    deadline: Option<u64>,
    budget: Budget,
    answer: oneshot::Sender<Answered>,
}

impl Batches {
    pub(crate) fn new(caller: Arc<Caller>) -> Self {
        Self { caller, queue: Arc::default() }
    }

    /// Takes what `request` asks for.
    pub(crate) async fn take(&self, request: Request, moment: Moment) -> Answered {
        let (answer, answered) = oneshot::channel();
        let deadline = self.caller.deadline(0, moment);
        let waiting = Waiting { request, deadline, budget: moment.budget, answer };
        let starts = {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= LONGEST {
                return Err(CallError::Unanswerable("too many requests wait for Redis".to_owned()));
            }
            queue.waiting.push_back(waiting);
            let starts = queue.calls < CALLS;
            queue.calls += usize::from(starts);
            starts
        };
        if starts {
            // In a task of its own, so that whoever came first may give up without the others.
            tokio::spawn(self.clone().work());
        }
        match moment.budget.wait_for(answered).await {
            Some(Ok(answer)) => answer,
            // The one who makes the call finds out whether that is Redis's fault.
            Some(Err(_)) | None => Err(self.caller.link.timed_out()),
        }
    }

    /// Makes calls until nobody waits.
    async fn work(self) {
        loop {
            let batch: Vec<Waiting> = {
                let mut queue = self.queue.lock();
                let most = queue.waiting.len().min(MOST);
                let batch = queue.waiting.drain(..most).filter(|waiting| !waiting.answer.is_closed()).collect();
                if most == 0 {
                    queue.calls -= 1;
                    return;
                }
                batch
            };
            if !batch.is_empty() {
                self.call(batch).await;
            }
        }
    }

    async fn call(&self, batch: Vec<Waiting>) {
        for _ in batch.iter().skip(1) {
            self.caller.link.counters().count(Counted::ByBatching);
        }
        // Nobody's deadline may pass before the script runs; the call itself may take as long as the last one waits.
        let deadline = batch.iter().map(|waiting| waiting.deadline).min().flatten();
        let Some(budget) = batch.iter().map(|waiting| waiting.budget).reduce(Budget::later) else { return };
        let (requests, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
        let timing = Timing { now: None, deadline };
        // Who has given up meanwhile does not read the answer.
        match self.caller.decide(Op::Take, &requests, 0, timing, budget).await {
            Err(CallError::Failed(_)) if requests.len() > 1 => {
                // A key of one of them is none of ours, which is not the others' fault. Those that came before it in the
                // script are charged twice: too much is refused then, but never too much granted.
                for (answer, request) in answers.into_iter().zip(&requests) {
                    let alone = self.caller.decide(Op::Take, std::slice::from_ref(request), 0, timing, budget).await;
                    let _ = answer.send(alone.and_then(|(now, replies)| {
                        let reply = replies.into_iter().next().ok_or_else(CallError::nonsense)?;
                        Ok((now, reply))
                    }));
                }
            }
            Ok((now, replies)) => {
                for (answer, reply) in answers.into_iter().zip(replies) {
                    let _ = answer.send(Ok((now, reply)));
                }
            }
            Err(error) => {
                for answer in answers {
                    let _ = answer.send(Err(error.clone()));
                }
            }
        }
    }
}
