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
//! polls every [`SHORT_WHILE`]; a reset by another process wakes the first of each queue.
//!
//! # What always holds (tests/it/lines.rs)
//! - Each count serves its queue in FIFO order.
//! - No request waits longer than the rule's `wait`, and no queue is longer than its `queue`.
//! - A request that stops waiting has charged nothing, and the next one moves up.
//! - A waiting request is woken when its count is reset, by any process, or when the rules change.

use super::decide::WhenFull;
use super::future::{NextStep, RefundGuard};
use super::queries::{Queries, Scope};
use super::record::{Queued, SharedDecision};
use super::{Engine, Verdict};
use diana_core::{Answer, Decision, LocalStore, MaxWait, Outcome, Retry, Store, Timestamp, WaitQueues};
use diana_rules::ruleset::{CompiledLimit, MatchedRule};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How often the first in the queue polls for permits that other processes may have released.
const SHORT_WHILE: Duration = Duration::from_millis(20);
/// How often a request yields to the other queues of its counts before it queries anyway: two requests, each first in a
/// queue that the other needs, would otherwise switch queues forever.
const MOST_MOVES: u32 = 8;
/// The longest sleep for tokio's timer, which supports at most two years. A waiter then sleeps again.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Which queue to join, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    line: u64,
    rule: u32,
    most: usize,
    /// The request is denied if it was not granted until then.
    deadline: Timestamp,
    /// When the first in the queue queries again, unless it is woken earlier.
    again: Timestamp,
}

/// A position in a queue. Dropping it wakes the next waiter.
struct Place<'a> {
    lines: &'a WaitQueues,
    line: u64,
    ticket: u64,
    call: Arc<WakeHandle>,
}

/// Wakes a waiter; a wake-up is stored until the waiter polls.
struct WakeHandle(Notify);

impl Wake for WakeHandle {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<'a> Place<'a> {
    /// Joins the end of a queue, unless it is full.
    fn join(lines: &'a WaitQueues, to: &Ticket) -> Option<Self> {
        let call = Arc::new(WakeHandle(Notify::new()));
        let (ticket, _) = lines.join_up_to(to.most, to.line, &Waker::from(Arc::clone(&call)))?;
        Some(Self { lines, line: to.line, ticket, call })
    }

    fn is_first(&self) -> bool {
        self.lines.is_first(self.line, self.ticket)
    }

    /// Waits until it is woken, for at most `at_most`.
    async fn called(&self, at_most: Duration) {
        // Woken and timed out are handled alike.
        let _ = tokio::time::timeout(at_most.min(MONTH), self.call.0.notified()).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lines.leave(self.line, self.ticket);
    }
}

/// Records the rule for which a request was queued until it was decided.
fn note_stood(verdict: &mut Verdict, rule: Option<u32>, began: Timestamp) {
    let time = verdict.at().since(began);
    verdict.made_mut().stood = rule.map(|rule| Queued { rule, time });
}

impl<S: Store + 'static> Engine<S> {
    /// Waits in the queue until the request is decided.
    pub(super) async fn stand_in_line(&self, mut begun: RefundGuard<'_>) -> Verdict {
        let (lines, began) = (&self.counts.lines, begun.verdict().at());
        let mut to = self.line_after(begun.verdict(), began).or_else(|| self.others(begun.verdict(), None, began));
        let mut place = None::<Place<'_>>;
        let (mut moves, mut rule) = (0, None);
        loop {
            if let Some(line) = to {
                let here = match place.take().filter(|place| place.line == line.line) {
                    Some(here) => {
                        here.called(line.again.since(self.now())).await;
                        here
                    }
                    None => match Place::join(lines, &line) {
                        Some(here) => here,
                        None => return self.turned_away(begun, &line, began),
                    },
                };
                while !here.is_first() && self.now() < line.deadline {
                    here.called(line.deadline.since(self.now())).await;
                }
                if !here.is_first() {
                    return self.turned_away(begun, &line, began);
                }
                rule = Some(line.rule);
                to = self.others(begun.verdict(), Some(here.line), began).filter(|_| moves < MOST_MOVES);
                place = Some(here);
                moves += 1;
                if to.is_some() {
                    continue;
                }
            }
            moves = 0;
            rule = begun.verdict_mut().go_over_to(self.rules.load(), rule);
            begun.verdict_mut().ask_anew(self.now());
            if self.ask_all(&mut begun).await {
                note_stood(begun.verdict_mut(), rule, began);
                return begun.done();
            }
            to = self.line_after(begun.verdict(), began);
            if to.is_none() {
                note_stood(begun.verdict_mut(), rule, began);
                return begun.done();
            }
        }
    }

    /// Denies a request whose queue is full, or that did not become the first in time.
    fn turned_away(&self, mut begun: RefundGuard<'_>, line: &Ticket, began: Timestamp) -> Verdict {
        begun.verdict_mut().ask_anew(self.now());
        note_stood(begun.verdict_mut(), Some(line.rule), began);
        self.others_are_first(begun.verdict_mut(), line);
        begun.done()
    }

    /// Checks all limits of the request and, if they grant it, the shadow rules; returns `true` if granted.
    async fn ask_all(&self, begun: &mut RefundGuard<'_>) -> bool {
        self.decide_local(begun.verdict_mut());
        begun.verdict().is_granted() && self.ask_shared(begun).await
    }

    /// Returns the queue for a denied request: that of the count with the latest retry time. `None` if waiting does not
    /// help, or a limit without `wait` denies it.
    pub(super) fn line_after(&self, verdict: &Verdict, began: Timestamp) -> Option<Ticket> {
        let made = verdict.made();
        let local = made.local.iter().map(|decision| (made.here, decision, false));
        let shared = made.shared.iter().map(|shared| (Scope::Shared, &shared.decision, !shared.here));
        let mut longest = None::<(Retry, Ticket)>;
        for (part, decision, elsewhere) in local.chain(shared) {
            for ((applied, limit), answer) in Queries::places(verdict, part).zip(decision.answers()) {
                let Some(retry) = answer.retry() else { continue };
                let to = self.line_for(verdict, (applied, limit), began)?;
                let again = match retry {
                    Retry::After(after) => Some(verdict.at() + after),
                    Retry::WhenReturned if elsewhere => Some((verdict.at() + SHORT_WHILE).min(to.deadline)),
                    Retry::WhenReturned => Some(to.deadline),
                    Retry::Never => None,
                }?;
                if again > to.deadline || verdict.at() >= to.deadline {
                    return None;
                }
                let is_later = longest.is_none_or(|(known, _)| known.later(retry) != known);
                if is_later {
                    longest = Some((retry, Ticket { again, ..to }));
                }
            }
        }
        longest.map(|(_, to)| to)
    }

    /// Returns the queue of one count; `None` if its rule has no `wait`.
    fn line_for(
        &self,
        verdict: &Verdict,
        (applied, limit): (&MatchedRule, &CompiledLimit),
        began: Timestamp,
    ) -> Option<Ticket> {
        let most = limit.line?;
        let line = self.counts.line(limit.limit.id(), verdict.found().key(applied));
        let deadline = began + limit.max_wait.as_duration();
        Some(Ticket { line, rule: applied.rule, most, deadline, again: deadline })
    }

    /// Returns the first non-empty queue among the request's counts, except its own.
    #[cold]
    pub(super) fn others(&self, verdict: &Verdict, own: Option<u64>, began: Timestamp) -> Option<Ticket> {
        // Without a shared store, these are all.
        let parts = [verdict.made().here, Scope::Shared];
        let parts = if parts[0] == Scope::Everything { &parts[..1] } else { &parts };
        let mut places = parts.iter().flat_map(|part| Queries::places(verdict, *part));
        places.find_map(|place| {
            let to = self.line_for(verdict, place, began)?;
            (Some(to.line) != own && self.counts.lines.has_waiters(to.line)).then_some(to)
        })
    }

    /// Returns the next step for a request that finds a non-empty queue.
    #[cold]
    pub(super) fn behind(&self, mut verdict: Verdict, line: &Ticket, in_line: WhenFull) -> (RefundGuard<'_>, NextStep) {
        if in_line == WhenFull::Queue {
            return (RefundGuard::new(&self.counts, verdict), NextStep::StandInLine);
        }
        self.others_are_first(&mut verdict, line);
        (RefundGuard::new(&self.counts, verdict), NextStep::Nothing)
    }

    /// Denies a request because others are queued for the same count.
    fn others_are_first(&self, verdict: &mut Verdict, line: &Ticket) {
        let here = verdict.made().here;
        let local = self.seen(verdict, here, line);
        verdict.made_mut().local = local;
        if here != Scope::Everything && verdict.is_granted() {
            let decision = self.seen(verdict, Scope::Shared, line);
            verdict.made_mut().shared = decision.map(|decision| Box::new(SharedDecision { decision, here: true }));
        }
    }

    /// Reads the counts from this process, and denies by the one that has a queue. (The queue may be empty by now; but
    /// no limit was checked, so nothing can be granted.)
    fn seen(&self, verdict: &Verdict, part: Scope, line: &Ticket) -> Option<Decision> {
        let asks = Queries::of(verdict, part);
        if asks.is_empty() {
            return None;
        }
        let seen = LocalStore::peek(self.local(), &asks, verdict.at(), MaxWait::NONE);
        Some(Decision::new(Queries::places(verdict, part).zip(seen.answers()).map(|(place, answer)| {
            if self.line_for(verdict, place, verdict.at()).is_none_or(|to| to.line != line.line) {
                return *answer;
            }
            let mut status = answer.status;
            if part == Scope::Shared {
                // The shared store has the actual count; it is too low, or the queue would be empty.
                status.remaining = 0;
            }
            let retry = answer.retry().unwrap_or(Retry::WhenReturned);
            Answer { outcome: Outcome::Denied { retry }, status }
        })))
    }
}
