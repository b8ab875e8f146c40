//! Wait queues, for counts whose algorithm can't predict when a request will be granted.
//!
//! # How it works
//! Each count, that is, each limit and key, has one queue. A request that is denied by a limit with `wait` joins the
//! queue of that count. Only the first in the queue queries, with all limits of its request; when it leaves the queue,
//! granted or not, it wakes the next. It queries when it becomes the first, when permits are released or refunded, and
//! at the retry time of the denial.
//!
//! A request with several counts is in one queue at a time: that of the count that denied it last. A later request that
//! finds a queue joins its end or is denied, so no request overtakes another.
//!
//! When the rules change, the first of each queue is woken and queries by the new rules.
//!
//! For a shared count the queue covers only this process. Releases by other processes wake no waiter, so the first
//! polls every [`POLL_SHARED`]; a reset by another process wakes the first of each queue.
//!
//! # What always holds (tests/it/wait_queues.rs)
//! - Each count serves its queue in FIFO order.
//! - No request waits longer than the rule's `wait`, and no queue is longer than its `queue`.
//! - A request that stops waiting has charged nothing, and the next one moves up.
//! - A waiting request is woken when its count is reset, by any process, or when the rules change.

use super::asks::{Scope, ScopedDecision};
use super::verdict::Queued;
use super::{ActiveRules, EngineState, Verdict};
use crate::ruleset::{CompiledLimit, CompiledRule, MatchedRule, Needs, WaitingRequest};
use arc_swap::ArcSwap;
use diana_core::{Answer, Decision, LocalStore, MaxWait, Outcome, Retry, Timestamp, WaitQueues};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How often the first in the queue polls for permits that other processes may have released.
const POLL_SHARED: Duration = Duration::from_millis(20);
/// How often a request yields to the other queues of its counts before it queries anyway: two requests, each first in a
/// queue that the other needs, would otherwise switch queues forever.
const MAX_MOVES: u32 = 8;
/// The longest sleep for tokio's timer, which supports at most two years. A waiter then sleeps again.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which queue to join, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    queue: u64,
    rule: u32,
    max_queued: usize,
    /// The request is denied if it was not granted until then.
    deadline: Timestamp,
    /// When the first in the queue queries again, unless it is woken earlier.
    retry_at: Timestamp,
}

/// A position in a queue. Dropping it wakes the next waiter.
struct Position<'a> {
    queues: &'a WaitQueues,
    queue: u64,
    number: u64,
    wake: Arc<WakeHandle>,
    /// Counts the request as waiting for its rule.
    _waiting: Option<WaitingRequest>,
}

/// Wakes a waiter; a wake-up is stored until the waiter polls.
struct WakeHandle(Notify);

impl Wake for WakeHandle {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<'a> Position<'a> {
    /// Joins the end of a queue, unless it is full.
    fn join(queues: &'a WaitQueues, ticket: &Ticket, verdict: &Verdict) -> Option<Self> {
        let wake = Arc::new(WakeHandle(Notify::new()));
        let (number, _) = queues.join_up_to(ticket.max_queued, ticket.queue, &Waker::from(Arc::clone(&wake)))?;
        let waiting = verdict.rules().rule(ticket.rule).map(CompiledRule::waiting);
        Some(Self { queues, queue: ticket.queue, number, wake, _waiting: waiting })
    }

    fn is_first(&self) -> bool {
        self.queues.is_first(self.queue, self.number)
    }

    /// Waits until it is woken, for at most `at_most`.
    async fn woken(&self, at_most: Duration) {
        // Woken and timed out are handled alike.
        let _ = tokio::time::timeout(at_most.min(MONTH), self.wake.0.notified()).await;
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        self.queues.leave(self.queue, self.number);
    }
}

/// Records the rule for which a request was queued until it was decided.
fn record_queued(verdict: &mut Verdict, rule: Option<u32>, since: Timestamp) {
    let time = verdict.at().since(since);
    verdict.unusual.queued = rule.map(|rule| Queued { rule, time });
}

impl EngineState {
    /// Waits in the queue until the request is decided.
    pub(super) async fn wait_in_queue(&self, rules: &ArcSwap<ActiveRules>, verdict: &mut Verdict) {
        let (queues, since) = (&self.counts.queues, verdict.at());
        let mut next = self.queue_after_denial(verdict, since).or_else(|| self.busy_queue(verdict, None, since));
        let mut position = None::<Position<'_>>;
        let (mut moves, mut rule) = (0, None);
        loop {
            if let Some(ticket) = next {
                let current = match position.take().filter(|position| position.queue == ticket.queue) {
                    Some(current) => {
                        current.woken(ticket.retry_at.since(self.counts.now())).await;
                        current
                    }
                    None => match Position::join(queues, &ticket, verdict) {
                        Some(current) => current,
                        None => return self.deny_queued(verdict, &ticket, since),
                    },
                };
                while !current.is_first() && self.counts.now() < ticket.deadline {
                    current.woken(ticket.deadline.since(self.counts.now())).await;
                }
                if !current.is_first() {
                    return self.deny_queued(verdict, &ticket, since);
                }
                rule = Some(ticket.rule);
                next = self.busy_queue(verdict, Some(current.queue), since).filter(|_| moves < MAX_MOVES);
                position = Some(current);
                moves += 1;
                if next.is_some() {
                    continue;
                }
            }
            moves = 0;
            rule = verdict.switch_to(rules.load(), rule);
            verdict.start_again(self.counts.now());
            if self.decide_all(verdict).await {
                record_queued(verdict, rule, since);
                return;
            }
            next = self.queue_after_denial(verdict, since);
            if next.is_none() {
                record_queued(verdict, rule, since);
                return;
            }
        }
    }

    /// Denies a request whose queue is full, or that did not become the first in time.
    fn deny_queued(&self, verdict: &mut Verdict, ticket: &Ticket, since: Timestamp) {
        verdict.start_again(self.counts.now());
        record_queued(verdict, Some(ticket.rule), since);
        self.deny_behind(verdict, ticket);
    }

    /// Checks all limits of the request and, if they grant it, the shadow rules; returns `true` if granted.
    async fn decide_all(&self, verdict: &mut Verdict) -> bool {
        if verdict.matches().needs().has(Needs::LOOK) && !self.look_local(verdict) {
            return false;
        }
        self.decide_local(verdict);
        verdict.is_granted() && self.decide_shared(verdict).await
    }

    /// Returns the queue for a denied request: that of the count with the latest retry time. `None` if waiting does not
    /// help, or a limit without `wait` denies it.
    pub(super) fn queue_after_denial(&self, verdict: &Verdict, since: Timestamp) -> Option<Ticket> {
        let mut longest = None::<(Retry, Ticket)>;
        for scoped in verdict.enforced() {
            for ((matched, limit), answer) in verdict.limits_in(scoped.scope).zip(scoped.decision.answers()) {
                let Some(retry) = answer.retry() else { continue };
                let ticket = self.ticket(verdict, (matched, limit), since)?;
                let retry_at = match retry {
                    Retry::After(after) => Some(verdict.at() + after),
                    Retry::WhenReleased if !scoped.is_local => Some((verdict.at() + POLL_SHARED).min(ticket.deadline)),
                    Retry::WhenReleased => Some(ticket.deadline),
                    Retry::Never => None,
                }?;
                if retry_at > ticket.deadline || verdict.at() >= ticket.deadline {
                    return None;
                }
                let is_later = longest.is_none_or(|(known, _)| known.later(retry) != known);
                if is_later {
                    longest = Some((retry, Ticket { retry_at, ..ticket }));
                }
            }
        }
        longest.map(|(_, ticket)| ticket)
    }

    /// Returns the queue of one count; `None` if its rule has no `wait`.
    fn ticket(
        &self,
        verdict: &Verdict,
        (matched, limit): (&MatchedRule, &CompiledLimit),
        since: Timestamp,
    ) -> Option<Ticket> {
        let max_queued = limit.queue?;
        let queue = self.counts.queue_id(&verdict.ask(matched, limit));
        let deadline = since + limit.max_wait.as_duration();
        Some(Ticket { queue, rule: matched.rule, max_queued, deadline, retry_at: deadline })
    }

    /// Returns the first non-empty queue among the request's counts, except its own.
    #[cold]
    pub(super) fn busy_queue(&self, verdict: &Verdict, own_queue: Option<u64>, since: Timestamp) -> Option<Ticket> {
        // The local scope has all queries if there is no shared store.
        let scopes = [verdict.local_scope, Scope::Shared];
        let scopes = if scopes[0] == Scope::Everything { &scopes[..1] } else { &scopes };
        let mut limits = scopes.iter().flat_map(|scope| verdict.limits_in(*scope));
        limits.find_map(|limit| {
            let ticket = self.ticket(verdict, limit, since)?;
            (Some(ticket.queue) != own_queue && self.counts.queues.has_waiters(ticket.queue)).then_some(ticket)
        })
    }

    /// Denies a request because others are queued for the same count.
    #[cold]
    pub(super) fn deny_behind(&self, verdict: &mut Verdict, ticket: &Ticket) {
        let scope = verdict.local_scope;
        self.deny_in(verdict, scope, ticket);
        if scope != Scope::Everything && verdict.is_granted() {
            self.deny_in(verdict, Scope::Shared, ticket);
        }
    }

    /// Reads the counts from this process, and denies by the one that has a queue. (The queue may be empty by now; but
    /// no limit was checked, so nothing can be granted.)
    fn deny_in(&self, verdict: &mut Verdict, scope: Scope, ticket: &Ticket) {
        let asks = verdict.asks(scope);
        if asks.is_empty() {
            return;
        }
        let peeked = LocalStore::peek(&self.counts.store, &asks, verdict.at(), MaxWait::NONE);
        let decision = Decision::new(verdict.limits_in(scope).zip(peeked.answers()).map(|(limit, answer)| {
            if self.ticket(verdict, limit, verdict.at()).is_none_or(|other| other.queue != ticket.queue) {
                return *answer;
            }
            let mut status = answer.status();
            if scope == Scope::Shared {
                // The shared store has the actual count; it is too low, or the queue would be empty.
                status.remaining = 0;
            }
            let retry = answer.retry().unwrap_or(Retry::WhenReleased);
            Answer::new(Outcome::Denied { retry }, status)
        }));
        drop(asks);
        verdict.add(ScopedDecision { scope, decision, is_local: true });
    }
}
