//! The requests of one moment in one round trip.
//!
//! While a script call is under way, requests that come gather; when it is back, all of them go as one call. Under little
//! load that is one request at a time, which waits for nobody; the more come at once, the more each call carries, and the
//! less each of them costs Redis. When as many wait as one call carries, or for an eighth of the time-out, they don't wait for
//! the calls before them: over a long way that would be longer than they can.
//!
//! A request gives up when its own time is over. That tells nothing about Redis, since it may have waited here for most of
//! it; whether Redis is up is judged by calls, and each has a time of its own.

use crate::link::{Budget, CallError, Counted};
use crate::request::{Op, Request, Timing};
use crate::script_runner::{CallContext, ScriptRunner};
use diana_core::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The most requests in one call: a script holds up all others while it runs, some 5 µs a request.
const MOST: usize = 64;
/// How many calls are under way at once when few requests wait: one on Redis, and one on its way.
const CALLS: usize = 2;
/// How many are when enough wait to fill another one, or for too long. All of them full are some 10 ms of Redis's time.
const MOST_CALLS: usize = 32;
/// The most requests that wait for a call. Beyond that Redis can't keep up, and those who come are told so.
const LONGEST: usize = 65_536;

/// What became of a request, and when.
type Answered = Result<(Timestamp, Value), CallError>;

/// Requests on their way to one Redis.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    runner: Arc<ScriptRunner>,
    queue: Arc<Mutex<Queue>>,
    /// The store's, which holds the connection: a caller's may end while others wait for the same call.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    calls: usize,
}

#[derive(Debug)]
struct Waiting {
    request: Request,
    /// A time that is handed in.
    now: Option<u64>,
    deadline: Option<u64>,
    budget: Budget,
    answer: oneshot::Sender<Answered>,
}

impl Queue {
    /// The requests of the next call: as they came, as long as they are of one `moment`, and of one time if that is handed in. So one that waits for long already
    /// (it asks again, or the queue was long) shares its early deadline with none that has just come.
    fn next(&mut self, moment: Duration) -> Option<Vec<Waiting>> {
        let mut batch: Vec<Waiting> = Vec::new();
        while let Some(next) = self.waiting.pop_front() {
            if next.answer.is_closed() {
                // Nobody waits for this one any more.
                continue;
            }
            let fits = |first: &Waiting| next.budget.is_near(first.budget, moment) && next.now == first.now;
            let fits = batch.first().is_none_or(fits);
            if batch.len() == MOST || !fits {
                self.waiting.push_front(next);
                break;
            }
            batch.push(next);
        }
        (!batch.is_empty()).then_some(batch)
    }
}

impl Batches {
    /// Makes its calls in the runtime that it is made in.
    pub(crate) fn new(runner: Arc<ScriptRunner>) -> Self {
        Self { runner, queue: Arc::default(), runtime: Handle::current() }
    }

    /// Takes what `request` asks for.
    pub(crate) async fn take(&self, request: Request, moment: CallContext) -> Answered {
        let (answer, mut answered) = oneshot::channel();
        let deadline = self.runner.deadline(0, moment);
        let now = self.runner.handed_in(moment);
        let waiting = Waiting { request, now, deadline, budget: moment.budget, answer };
        {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= LONGEST {
                return Err(CallError::NotNow("too many requests wait for Redis".to_owned()));
            }
            queue.waiting.push_back(waiting);
            let calls = if queue.waiting.len() >= MOST { MOST_CALLS } else { CALLS };
            self.start(queue, calls);
        }
        let answered = match self.runner.link.a_moment_of(moment.budget).wait_for(&mut answered).await {
            Some(answer) => Some(answer),
            None => {
                self.hurry();
                moment.budget.wait_for(answered).await
            }
        };
        match answered {
            Some(Ok(answer)) => answer,
            // Whoever makes the call finds out whether that is Redis's fault.
            Some(Err(_)) | None => Err(self.runner.link.timed_out()),
        }
    }

    /// Lets nobody wait for others' calls for longer than a moment.
    fn hurry(&self) {
        let queue = self.queue.lock();
        if queue.waiting.front().is_some_and(|first| self.runner.link.has_waited(first.budget)) {
            self.start(queue, MOST_CALLS);
        }
    }

    /// Starts one more who makes calls, if there are fewer than so many.
    fn start(&self, mut queue: MutexGuard<'_, Queue>, most: usize) {
        if queue.calls >= most {
            return;
        }
        queue.calls += 1;
        // A runtime that has ended drops the worker here and now, which wants the lock.
        drop(queue);
        // In a task of its own, so that whoever came first may give up without the others.
        self.runtime.spawn(Worker { batches: self.clone(), is_counted: true }.work());
    }

    async fn call(&self, batch: Vec<Waiting>) {
        for _ in batch.iter().skip(1) {
            self.runner.link.counters().count(Counted::ByBatching);
        }
        // Nobody's deadline may pass before the script runs. All of them are near, so who is late for another's sake had
        // little time left itself; it asks again.
        let deadline = batch.iter().filter_map(|waiting| waiting.deadline).min();
        let Some(last) = batch.iter().map(|waiting| waiting.budget).reduce(Budget::later) else { return };
        let budget = self.runner.link.budget_of_call(last);
        let now = batch.first().and_then(|first| first.now);
        let (requests, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
        let timing = Timing { now, deadline };
        // Who has given up meanwhile does not read the answer.
        match self.runner.decide(Op::Take, &requests, 0, timing, budget).await {
            Err(CallError::Failed(_)) if requests.len() > 1 => {
                // A key of one of them is none of ours, which is not the others' fault. Those that came before it in the
                // script are charged twice: too much is refused then, but never too much granted.
                for (answer, request) in answers.into_iter().zip(&requests) {
                    let alone = self.runner.decide(Op::Take, std::slice::from_ref(request), 0, timing, budget).await;
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

/// One who makes calls. It is counted for as long as it is there, also if its runtime ends before its work does.
struct Worker {
    batches: Batches,
    is_counted: bool,
}

impl Worker {
    /// Makes calls until nobody waits.
    async fn work(mut self) {
        while let Some(batch) = self.next() {
            self.batches.call(batch).await;
        }
    }

    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut queue = self.batches.queue.lock();
        let batch = queue.next(self.batches.runner.link.a_moment());
        if batch.is_none() {
            // Under the same lock: whoever comes next must see that nobody is at work.
            queue.calls -= 1;
            self.is_counted = false;
        }
        batch
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.is_counted {
            self.batches.queue.lock().calls -= 1;
        }
    }
}
