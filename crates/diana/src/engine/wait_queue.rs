//! Standing in line for a count whose algorithm can't tell when the turn will come.
//!
//! # How it works
//! There is one line for each count, that is, each limit and key. Whoever is denied by a limit that lets it `wait` joins the
//! line of that count. Only the first in line asks, with all that the request asks for; when it leaves, granted or not, it
//! wakes the next. It asks when it becomes the first, when something comes back, and at the moment that the denial told.
//!
//! A request that touches several counts stands in one line at a time: in the line of the count that denied it last. Who comes
//! later and finds a line stands behind it, or is denied, so nobody overtakes.
//!
//! When the rules change, the first of each line is woken and asks by the new rules.
//!
//! For a shared count the line is that of this process. What others give back wakes nobody here, so the first asks every
//! [`SHORT_WHILE`]; a reset by others wakes the first of each line.
//!
//! # What always holds (tests/it/lines.rs)
//! - First come, first served, for each count.
//! - Nobody waits longer than the rule's `wait`, and no line is longer than its `queue`.
//! - Whoever stops waiting has taken nothing, and the next one moves up.
//! - Whoever waits is woken when its count is reset, by whichever process, or when the rules change.

use super::decide::WhenFull;
use super::future::{NextStep, RefundGuard};
use super::queries::{Queries, Scope};
use super::record::{Queued, SharedDecision};
use super::{Engine, Verdict};
use diana_core::{Answer, Decision, LocalStore, MaxWait, Outcome, Retry, Store, Timestamp, WaitQueues};
use diana_rules::{CompiledLimit, MatchedRule};
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// How often the first in line asks for what other processes may have given back.
const SHORT_WHILE: Duration = Duration::from_millis(20);
/// How often a request lets others go first that stand in another of its lines before it asks all the same: two that are each
/// the first in the other's way would change places for ever.
const MOST_MOVES: u32 = 8;
/// The longest that tokio's timer is asked to sleep; it takes no more than two years. Whoever waits looks again.
const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);

/// Where to stand, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    line: u64,
    rule: u32,
    most: usize,
    /// Who has no turn until then gives up.
    deadline: Timestamp,
    /// When the first in line asks again, if nobody wakes it earlier.
    again: Timestamp,
}

/// A place in a line. Dropped, it goes to the next.
struct Place<'a> {
    lines: &'a WaitQueues,
    line: u64,
    ticket: u64,
    call: Arc<WakeHandle>,
}

/// How somebody in line is called; a call is remembered until it is heard.
struct WakeHandle(Notify);

impl Wake for WakeHandle {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<'a> Place<'a> {
    /// A place at the end of a line, unless it is full.
    fn join(lines: &'a WaitQueues, to: &Ticket) -> Option<Self> {
        let call = Arc::new(WakeHandle(Notify::new()));
        let (ticket, _) = lines.join_up_to(to.most, to.line, &Waker::from(Arc::clone(&call)))?;
        Some(Self { lines, line: to.line, ticket, call })
    }

    fn is_first(&self) -> bool {
        self.lines.is_first(self.line, self.ticket)
    }

    /// Waits until it is called, for at most so long.
    async fn called(&self, at_most: Duration) {
        // Either will do.
        let _ = tokio::time::timeout(at_most.min(MONTH), self.call.0.notified()).await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lines.leave(self.line, self.ticket);
    }
}

/// Notes for which rule a request stood in line until it was decided.
fn note_stood(verdict: &mut Verdict, rule: Option<u32>, began: Timestamp) {
    let time = verdict.at().since(began);
    verdict.made_mut().stood = rule.map(|rule| Queued { rule, time });
}

impl<S: Store + 'static> Engine<S> {
    /// Waits for its turn.
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

    /// Denies a request that found its line full, or did not become the first in time.
    fn turned_away(&self, mut begun: RefundGuard<'_>, line: &Ticket, began: Timestamp) -> Verdict {
        begun.verdict_mut().ask_anew(self.now());
        note_stood(begun.verdict_mut(), Some(line.rule), began);
        self.others_are_first(begun.verdict_mut(), line);
        begun.done()
    }

    /// Asks for all that the request asks for, and if it is granted, the shadows; says whether it is granted.
    async fn ask_all(&self, begun: &mut RefundGuard<'_>) -> bool {
        self.decide_local(begun.verdict_mut());
        begun.verdict().is_granted() && self.ask_shared(begun).await
    }

    /// Which line a request stands in that was denied: that of the count that stands in its way longest. `None` if waiting
    /// won't help, or a limit is in its way that lets nobody wait.
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

    /// The line before one count; `None` if its rule lets nobody wait.
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

    /// The first of the request's lines in which others stand, but for its own.
    #[cold]
    pub(super) fn others(&self, verdict: &Verdict, own: Option<u64>, began: Timestamp) -> Option<Ticket> {
        // With nobody sharing, this is all.
        let parts = [verdict.made().here, Scope::Shared];
        let parts = if parts[0] == Scope::Everything { &parts[..1] } else { &parts };
        let mut places = parts.iter().flat_map(|part| Queries::places(verdict, *part));
        places.find_map(|place| {
            let to = self.line_for(verdict, place, began)?;
            (Some(to.line) != own && self.counts.lines.has_waiters(to.line)).then_some(to)
        })
    }

    /// What becomes of a request that finds others in line.
    #[cold]
    pub(super) fn behind(&self, mut verdict: Verdict, line: &Ticket, in_line: WhenFull) -> (RefundGuard<'_>, NextStep) {
        if in_line == WhenFull::Queue {
            return (RefundGuard::new(&self.counts, verdict), NextStep::StandInLine);
        }
        self.others_are_first(&mut verdict, line);
        (RefundGuard::new(&self.counts, verdict), NextStep::Nothing)
    }

    /// Denies a request because others stand in line for the same count.
    fn others_are_first(&self, verdict: &mut Verdict, line: &Ticket) {
        let here = verdict.made().here;
        let local = self.seen(verdict, here, line);
        verdict.made_mut().local = local;
        if here != Scope::Everything && verdict.is_granted() {
            let decision = self.seen(verdict, Scope::Shared, line);
            verdict.made_mut().shared = decision.map(|decision| Box::new(SharedDecision { decision, here: true }));
        }
    }

    /// What is seen of counts from this process, with a denial by that which others stand in line for. (The line may have gone
    /// meanwhile; but nothing was asked, so nothing can be granted.)
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
                // What is left is counted elsewhere; there is not enough, or nobody would wait.
                status.remaining = 0;
            }
            let retry = answer.retry().unwrap_or(Retry::WhenReturned);
            Answer { outcome: Outcome::Denied { retry }, status }
        })))
    }
}
