//! The sliding log on Redis: `scripts/sliding_log.lua`.
//!
//! A log may be long, so the script does not return it. It returns for each window the used permits and two times, from
//! which the reported values are computed as [`SlidingLog`] does.

use super::sliding_window::{divided_count, too_long};
use crate::args::Args;
use crate::quota_text::{quota_from_text, quota_text};
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, CachedState, Effect, Numbers, Report, ScriptedAlgorithm, StoredState};
use crate::scripts::{Library, Module};
use diana_core::{Answer, Outcome, Quota, Receipt, Retry, SlidingLog, SlidingLogState, Status, Timestamp};
use std::cmp::Reverse;
use std::time::Duration;

impl ScriptedAlgorithm for SlidingLog {
    const MODULE: Module = Module {
        name: "sliding_log",
        letter: 'g',
        source: include_str!("../../scripts/sliding_log.lua"),
        libraries: &[Library::SET],
    };

    fn unsupported_reason(&self) -> Option<String> {
        self.windows().iter().find_map(too_long)
    }

    fn parameters(&self) -> String {
        self.windows().iter().map(quota_text).collect::<Vec<_>>().join("+")
    }

    fn from_parameters(text: &str) -> Option<Self> {
        let windows = text.split('+').map(quota_from_text).collect::<Option<Vec<_>>>()?;
        Self::several(windows).ok()
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        let longest = longest(self);
        args.push(ask.cost.get());
        args.push(longest.permits());
        args.push(micros(&longest));
        args.push(self.windows().len());
        for window in self.windows() {
            args.push(micros(window));
            args.push(window.permits());
        }
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        self.take_args(args, ask);
    }

    /// A charge is in the window from now on, regardless of the state before.
    fn charged(&self, _numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        Some(Receipt::new(ask.cost, now).with_mark(u128::from(now.as_nanos())))
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        args.push(receipt.cost().get());
        args.push(receipt.mark() / 1_000);
        args.push(micros(&longest(self)));
    }

    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        let mut uses = uses(self, numbers)?;
        let limit = self.windows().iter().map(Quota::permits).min()?;
        let denied = uses.iter().filter_map(|each| each.retry(ask.cost.get(), now)).reduce(Retry::later);
        let outcome = match denied {
            _ if ask.cost.get() > limit => Outcome::never(),
            Some(retry) => Outcome::Denied { retry },
            None => Outcome::granted(Receipt::new(ask.cost, now).with_mark(u128::from(now.as_nanos()))),
        };
        if effect == Effect::Taken {
            uses.iter_mut().for_each(|each| each.take(ask.cost.get(), now));
        }
        let each = uses.iter().map(|each| each.status(now));
        let (remaining, reset) = each.min_by_key(|(remaining, reset)| (*remaining, Reverse(*reset)))?;
        Some(Answer::new(outcome, Status { limit, remaining, reset }))
    }

    /// The log is not returned, but the report is valid until the oldest entry leaves its window.
    fn cached_state(
        &self,
        numbers: Numbers<'_>,
        ask: &AskArgs,
        now: Timestamp,
        effect: Effect,
    ) -> Option<CachedState<SlidingLogState>> {
        let answer = self.answer_to(numbers, ask, now, effect)?;
        let (outcome, status) = (answer.outcome, answer.status());
        let denied = match outcome.retry() {
            Some(Retry::After(until)) => Some((ask.cost, until)),
            _ => None,
        };
        let uses = uses(self, numbers)?.into_iter().filter_map(|mut each| {
            if effect == Effect::Taken {
                each.take(ask.cost.get(), now);
            }
            (each.used > 0).then(|| each.status(now).1)
        });
        let valid_for = uses.min().unwrap_or(Duration::MAX);
        Some(CachedState::Report(Report { status, at: now, valid_for, denied }))
    }

    /// Entries in the future were written before the clock was set back, and count as at now.
    fn read(&self, body: &Body, now: Timestamp) -> Option<SlidingLogState> {
        let Body::Set(members) = body else { return None };
        let entries = members.iter().map(|(member, score)| {
            let (_, held) = member.split_once(':')?;
            Some((Timestamp::from_micros(score.parse().ok()?).min(now), held.parse().ok()?))
        });
        entries.collect::<Option<Vec<_>>>().map(SlidingLogState::from_entries)
    }

    fn write(&self, state: &SlidingLogState, now: Timestamp) -> StoredState {
        let (mut total, mut members, mut fresh_at) = (0_u64, Vec::new(), 0);
        for (time, held) in state.entries() {
            total = total.saturating_add(held);
            members.push((format!("{total}:{held}"), time.as_micros().to_string()));
            fresh_at = time.as_micros().saturating_add(micros(&longest(self))).min(END);
        }
        StoredState { body: (fresh_at > now.as_micros()).then_some(Body::Set(members)), fresh_at: Some(fresh_at) }
    }

    fn divided(&self, instances: u64) -> Self {
        let windows = self.windows().iter().map(|window| divided_count(window, instances));
        Self::several(windows).unwrap_or_else(|_| self.clone())
    }
}

/// One window, as the script returns it.
struct WindowUse {
    window: Quota,
    used: u64,
    /// The oldest entry in it; meaningless if no permits are used.
    oldest: Timestamp,
    /// The entry whose expiry frees enough permits; meaningless if they are free already, or never will be.
    freeing: Timestamp,
}

impl WindowUse {
    fn parse(window: Quota, numbers: Numbers<'_>, offset: usize) -> Option<Self> {
        let time = |index| numbers.whole(index).map(Timestamp::from_micros);
        Some(Self { window, used: numbers.whole(offset)?, oldest: time(offset + 1)?, freeing: time(offset + 2)? })
    }

    fn take(&mut self, cost: u64, now: Timestamp) {
        self.oldest = if self.used == 0 { now } else { self.oldest };
        self.used = self.used.saturating_add(cost);
    }

    /// Returns when `cost` fits, if it does not yet.
    fn retry(&self, cost: u64, now: Timestamp) -> Option<Retry> {
        let fits = self.used.saturating_add(cost) <= self.window.permits();
        (!fits).then(|| Retry::After((self.freeing + self.window.period()).since(now)))
    }

    /// Returns the remaining permits, and when the oldest entry leaves.
    fn status(&self, now: Timestamp) -> (u64, Duration) {
        let reset = if self.used == 0 { Duration::ZERO } else { (self.oldest + self.window.period()).since(now) };
        (self.window.permits().saturating_sub(self.used), reset)
    }
}

fn uses(log: &SlidingLog, numbers: Numbers<'_>) -> Option<Vec<WindowUse>> {
    log.windows().iter().enumerate().map(|(index, window)| WindowUse::parse(*window, numbers, 3 * index)).collect()
}

/// Returns the window that determines how long an entry matters; of equally long ones the one with the highest count.
fn longest(log: &SlidingLog) -> Quota {
    let longest = log.windows().iter().max_by_key(|window| (window.period(), window.permits()));
    longest.copied().unwrap_or_else(|| unreachable!("a log has a window"))
}

/// Returns a window's length in whole microseconds, rounded up: an entry leaves with the first microsecond outside of it.
fn micros(window: &Quota) -> u64 {
    u64::try_from(window.period().as_nanos().div_ceil(1_000)).unwrap_or(END).min(END)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_parsed_back() {
        let (second, minute) = (Quota::per_second(1).unwrap(), Quota::per_minute(5).unwrap());
        let log = SlidingLog::several([second, minute]).unwrap();
        assert_eq!(log.parameters(), "1/1s*1+5/60s*5");
        for log in [log, SlidingLog::new(minute.with_burst(7).unwrap())] {
            assert_eq!(SlidingLog::from_parameters(&log.parameters()), Some(log));
        }
        for text in ["", "+", "1/1s*1+", "1/1s"] {
            assert_eq!(SlidingLog::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_parsed_back() {
        let log = SlidingLog::new(Quota::per_minute(5).unwrap());
        let (now, entries) = (Timestamp::from_secs(100), [(70, 2), (80, 1), (90, 1)]);
        let entries = entries.map(|(secs, permits)| (Timestamp::from_secs(secs), permits));
        let StoredState { body, fresh_at } = log.write(&SlidingLogState::from_entries(entries), now);
        assert_eq!(fresh_at, Some(150_000_000));
        let body = body.unwrap();
        assert!(log.read(&body, now).unwrap().entries().eq(entries));
        // After the clock was set back, entries in the future count as at now.
        let now = Timestamp::from_secs(75);
        assert!(log.read(&body, now).unwrap().entries().eq([(Timestamp::from_secs(70), 2), (now, 2)]));
    }

    #[test]
    fn a_window_longer_than_the_clock_is_not_supported() {
        let long = Quota::new(1, Duration::from_nanos(u64::MAX)).unwrap();
        assert!(SlidingLog::new(long).unsupported_reason().unwrap().contains("140 years"));
    }
}
