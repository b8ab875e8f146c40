//! Batches concurrent requests into one round trip.
//!
//! While a script call is in flight, new requests are collected; when the call returns, all of them are sent as one
//! call. Under low load a call carries one request, which does not wait for others. The more requests arrive
//! concurrently, the more each call carries and the less each request costs Redis. When a full batch is waiting, or a
//! request has waited for an eighth of the timeout, the next call is sent without waiting for the calls before it: with
//! a long round trip, that wait would exceed the timeout.
//!
//! A request times out when its own budget is used up. This is not evidence that Redis is down, since the request may
//! have spent most of the budget in this queue. Only calls determine whether Redis is up, and each call has its own budget.

use crate::link::{Budget, CallError, Counter};
use crate::script_call::{Op, Request, ScriptTime, Timing};
use crate::script_runner::{CallContext, ScriptRunner};
use diana_core::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use redis::Value;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The maximum number of requests in one call: a script blocks all others while it runs, about 5 µs per request.
const MAX_BATCH: usize = 64;
/// The maximum number of concurrent calls when few requests wait: one running on Redis, and one on the network.
const NORMAL_CALLS: usize = 2;
/// The maximum number of concurrent calls when enough requests wait to fill another call, or one has waited for too
/// long. If all are full, they need about 10 ms of Redis's time.
const MAX_CALLS: usize = 32;
/// The maximum number of requests that wait for a call. If more arrive, Redis can't keep up, and they fail at once.
const MAX_QUEUED: usize = 65_536;

/// The result of a request, with Redis's time.
type BatchResult = Result<(Timestamp, Value), CallError>;

/// Batches of requests to one Redis.
#[derive(Clone, Debug)]
pub(crate) struct Batches {
    runner: Arc<ScriptRunner>,
    queue: Arc<Mutex<Queue>>,
    /// The store's runtime, which owns the connection: the caller's runtime may end while other requests wait for the
    /// same call.
    runtime: Handle,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<QueuedRequest>,
    calls: usize,
}

#[derive(Debug)]
struct QueuedRequest {
    request: Request,
    /// The time that the caller provided, if any.
    now: ScriptTime,
    deadline: Option<u64>,
    budget: Budget,
    answer: oneshot::Sender<BatchResult>,
}

impl Queue {
    /// Returns the requests of the next call in arrival order, as long as their deadlines are within `max_distance` of
    /// each other and, if the caller provides the time, their times are equal. So a request that has waited for long
    /// (it is retried, or the queue was long) does not impose its early deadline on new requests.
    fn next(&mut self, max_distance: Duration) -> Option<Vec<QueuedRequest>> {
        let mut batch: Vec<QueuedRequest> = Vec::new();
        while let Some(next) = self.waiting.pop_front() {
            if next.answer.is_closed() {
                // The requester no longer waits for this answer.
                continue;
            }
            let fits = |first: &QueuedRequest| next.budget.is_near(first.budget, max_distance) && next.now == first.now;
            let fits = batch.first().is_none_or(fits);
            if batch.len() == MAX_BATCH || !fits {
                self.waiting.push_front(next);
                break;
            }
            batch.push(next);
        }
        (!batch.is_empty()).then_some(batch)
    }
}

impl Batches {
    /// Creates batches whose calls run in the current runtime.
    pub(crate) fn new(runner: Arc<ScriptRunner>) -> Self {
        Self { runner, queue: Arc::default(), runtime: Handle::current() }
    }

    /// Takes the permits of `request`.
    pub(crate) async fn take(&self, request: Request, context: CallContext) -> BatchResult {
        let (answer, mut answered) = oneshot::channel();
        let deadline = self.runner.deadline(0, context);
        let now = self.runner.script_time(context);
        let waiting = QueuedRequest { request, now, deadline, budget: context.budget, answer };
        {
            let mut queue = self.queue.lock();
            if queue.waiting.len() >= MAX_QUEUED {
                return Err(CallError::Transient("too many requests are waiting for Redis".to_owned()));
            }
            queue.waiting.push_back(waiting);
            let calls = if queue.waiting.len() >= MAX_BATCH { MAX_CALLS } else { NORMAL_CALLS };
            self.start(queue, calls);
        }
        let answered = match self.runner.link.batch_window_of(context.budget).wait_for(&mut answered).await {
            Some(answer) => Some(answer),
            None => {
                self.start_overdue();
                context.budget.wait_for(answered).await
            }
        };
        match answered {
            Some(Ok(answer)) => answer,
            // The task that makes the call determines whether Redis is at fault.
            Some(Err(_)) | None => Err(self.runner.link.timed_out()),
        }
    }

    /// Starts another call if a request has waited for others' calls for longer than an eighth of the timeout.
    fn start_overdue(&self) {
        let queue = self.queue.lock();
        if queue.waiting.front().is_some_and(|first| self.runner.link.has_waited(first.budget)) {
            self.start(queue, MAX_CALLS);
        }
    }

    /// Starts another worker if fewer than `max` are running.
    fn start(&self, mut queue: MutexGuard<'_, Queue>, max: usize) {
        if queue.calls >= max {
            return;
        }
        queue.calls += 1;
        // A runtime that has shut down drops the worker immediately, and its `Drop` takes the lock.
        drop(queue);
        // A separate task runs the call, so that the first request may be cancelled without affecting the others.
        self.runtime.spawn(Worker { batches: self.clone(), is_counted: true }.work());
    }

    async fn call(&self, batch: Vec<QueuedRequest>) {
        for _ in batch.iter().skip(1) {
            self.runner.link.counters().count(Counter::SavedByBatching);
        }
        // No request's deadline may pass before the script runs. All deadlines are close to each other, so a request
        // that misses its own because of another one had little time left anyway; it is retried.
        let deadline = batch.iter().filter_map(|waiting| waiting.deadline).min();
        let Some(last) = batch.iter().map(|waiting| waiting.budget).reduce(Budget::later) else { return };
        let budget = self.runner.link.budget_of_call(last);
        let now = batch.first().map(|first| first.now).unwrap_or_default();
        let (requests, answers): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
        let timing = Timing { now, deadline };
        // Requests that have timed out in the meantime ignore the answer.
        match self.runner.decide(Op::Take, &requests, 0, timing, budget).await {
            Err(CallError::ScriptFailed(_)) if requests.len() > 1 => {
                // A key of one request does not hold a Diana state, which must not affect the other requests. Requests
                // before it in the script are charged twice: this may deny too much, but never grants too much.
                for (answer, request) in answers.into_iter().zip(&requests) {
                    let alone = self.runner.decide(Op::Take, std::slice::from_ref(request), 0, timing, budget).await;
                    let _ = answer.send(alone.and_then(|(now, replies)| {
                        let reply = replies.into_iter().next().ok_or_else(CallError::invalid_reply)?;
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

/// A task that makes calls. It is counted while it exists, also if its runtime shuts down before it finishes.
struct Worker {
    batches: Batches,
    is_counted: bool,
}

impl Worker {
    /// Makes calls until no request waits.
    async fn work(mut self) {
        while let Some(batch) = self.next() {
            self.batches.call(batch).await;
        }
    }

    fn next(&mut self) -> Option<Vec<QueuedRequest>> {
        let mut queue = self.batches.queue.lock();
        let batch = queue.next(self.batches.runner.link.batch_window());
        if batch.is_none() {
            // Under the same lock: the next request must see that no worker is running.
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
