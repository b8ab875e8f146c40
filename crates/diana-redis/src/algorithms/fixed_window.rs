//! Fixed windows on Redis, aligned to the clock, started by the first request, or of the calendar:
//! `scripts/fixed_window.lua`.

use crate::args::Args;
use crate::quota_text::{quota_from_text, quota_text};
use crate::rational_time::END;
use crate::scripted_algorithm::{AskArgs, Body, Effect, Leasing, Numbers, ScriptedAlgorithm, StoredState, with_mark};
use crate::scripts::{Library, Module};
use diana_core::{
    Answer, Calendar, FixedWindow, FixedWindowState, MAX_PERMITS, Quota, Receipt, Timestamp, WindowStart,
};
use std::time::Duration;

/// The maximum difference between Redis's clock and this process's: the script receives the dates of all windows that
/// it may need within it.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(86_400);

/// The parameters' suffix for windows that the first request starts.
const FIRST: &str = "+first";

/// The names of calendar units.
const UNITS: [(Calendar, &str); 3] = [(Calendar::Day, "day"), (Calendar::Week, "week"), (Calendar::Month, "month")];

impl ScriptedAlgorithm for FixedWindow {
    const MODULE: Module = Module {
        name: "fixed_window",
        letter: 'f',
        source: include_str!("../../scripts/fixed_window.lua"),
        libraries: &[Library::FIELDS],
    };

    fn unsupported_reason(&self) -> Option<String> {
        let quota = self.quota();
        let (length, parts) = length(&quota);
        // Half of a script's number range is reserved for the clock.
        if quota.period().as_micros() >= u128::from(END / 2) {
            return Some(format!("a window of {quota} is longer than 140 years"));
        }
        // On the clock, the script multiplies the elapsed part of a window by the denominator.
        let is_on_the_clock = self.window_start() == Some(WindowStart::OnTheClock);
        let is_too_fine = is_on_the_clock && parts > 1 && length.saturating_mul(parts) >= MAX_PERMITS;
        is_too_fine.then(|| format!("a window of {quota} is too long to be counted to the nanosecond on Redis"))
    }

    /// Returns `quota`, `quota+first`, or `limit/unit@zone`.
    fn parameters(&self) -> String {
        let quota = self.quota();
        match (self.dates(), self.window_start()) {
            (Some((unit, zone)), _) => format!("{}/{}@{zone}", quota.permits(), unit_name(unit)),
            (None, Some(WindowStart::FirstRequest)) => format!("{}{FIRST}", quota_text(&quota)),
            (None, Some(WindowStart::OnTheClock) | None) => quota_text(&quota),
        }
    }

    fn from_parameters(text: &str) -> Option<Self> {
        if let Some((window, zone)) = text.split_once('@') {
            let (limit, unit) = window.split_once('/')?;
            let (unit, _) = UNITS.into_iter().find(|(_, name)| *name == unit)?;
            return Self::calendar(limit.parse().ok()?, unit, zone).ok();
        }
        match text.strip_suffix(FIRST) {
            Some(quota) => Some(Self::new(quota_from_text(quota)?).with_window_start(WindowStart::FirstRequest)),
            None => Some(Self::new(quota_from_text(text)?)),
        }
    }

    fn take_args(&self, args: &mut Args, ask: &AskArgs) {
        let quota = self.quota();
        args.push(ask.cost.get());
        args.push(quota.permits());
        match self.window_start() {
            Some(WindowStart::FirstRequest) => {
                args.push("first");
                args.push(quota.period().as_nanos().div_ceil(1_000));
            }
            Some(WindowStart::OnTheClock) => {
                let (length, parts) = length(&quota);
                args.push("clock");
                args.push(length);
                args.push(parts);
            }
            None => {
                let (from, ends) = dates(self, ask.local_now);
                args.push("dates");
                args.push(from);
                ends.for_each(|end| args.push(end));
            }
        }
    }

    fn charge_args(&self, args: &mut Args, ask: &AskArgs) {
        self.take_args(args, ask);
    }

    fn charged(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp) -> Option<Receipt> {
        let ends = match numbers.whole(0)? {
            0 => self.restored_at(now),
            ends => Timestamp::from_micros(ends),
        };
        Some(Receipt::new(ask.cost, now).with_mark(mark(numbers.whole(2)?, u128::from(ends.as_nanos()))))
    }

    fn refund_args(&self, args: &mut Args, receipt: &Receipt) {
        args.push(receipt.cost().get());
        let (born, ends) = (receipt.mark() >> 64, receipt.mark() & u128::from(u64::MAX));
        args.push(ends.div_ceil(1_000).min(u128::from(END)));
        args.push(born);
    }

    /// The receipt is marked with the creation time of the state, so that it is void after a reset.
    fn answer_to(&self, numbers: Numbers<'_>, ask: &AskArgs, now: Timestamp, effect: Effect) -> Option<Answer> {
        let answer = self.answer_to_state(self.parse_state(numbers, now)?, ask, now, effect);
        let ends = answer.receipt().map_or(0, |receipt| receipt.mark());
        Some(with_mark(answer, mark(numbers.whole(2)?, ends)))
    }

    fn parse_state(&self, numbers: Numbers<'_>, _now: Timestamp) -> Option<FixedWindowState> {
        Some(FixedWindowState::new(Timestamp::from_micros(numbers.whole(0)?), numbers.whole(1)?))
    }

    fn read(&self, body: &Body, now: Timestamp) -> Option<FixedWindowState> {
        let Body::Text(text) = body else { return None };
        let (ends, count) = text.split_once(' ')?;
        let ends = Timestamp::from_micros(ends.parse().ok()?);
        // Ends no later than a window that begins now, as in the script.
        let latest = Timestamp::from_micros(micros(self.restored_at(now)));
        Some(FixedWindowState::new(ends.min(latest), count.parse().ok()?))
    }

    fn write(&self, state: &FixedWindowState, now: Timestamp) -> StoredState {
        let (ends, count) = (micros(state.ends()), state.count().min(MAX_PERMITS));
        let is_stored = count > 0 && ends > now.as_micros();
        StoredState { body: is_stored.then(|| Body::Text(format!("{ends} {count}"))), fresh_at: Some(ends) }
    }

    fn leasing(&self) -> Leasing {
        Leasing::ByTaking
    }

    fn divided(&self, instances: u64) -> Self {
        let (quota, instances) = (self.quota(), instances.max(1));
        let limit = (quota.permits() / instances).max(1);
        let share = match self.dates() {
            Some((unit, zone)) => Self::calendar(limit, unit, zone).ok(),
            None => Quota::new(limit, quota.period())
                .ok()
                .map(|quota| Self::new(quota).with_window_start(self.window_start().unwrap_or_default())),
        };
        share.unwrap_or_else(|| self.clone())
    }
}

/// Returns a mark of the state's creation time and its window's end.
fn mark(born: u64, ends: u128) -> u128 {
    u128::from(born) << 64 | ends
}

/// Returns the length of a window as a fraction of microseconds in lowest terms.
fn length(quota: &Quota) -> (u64, u64) {
    let nanos = u64::try_from(quota.period().as_nanos()).unwrap_or(u64::MAX);
    let divisor = [1_000, 500, 250, 200, 125, 100, 50, 40, 25, 20, 10, 8, 5, 4, 2]
        .into_iter()
        .find(|divisor| nanos.is_multiple_of(*divisor))
        .unwrap_or(1);
    (nanos / divisor, 1_000 / divisor)
}

/// Converts a time to microseconds, rounded up.
fn micros(time: Timestamp) -> u64 {
    time.as_nanos().div_ceil(1_000).min(END)
}

/// Returns a time that is at least [`MAX_CLOCK_SKEW`] earlier, and the ends of all windows from then until
/// [`MAX_CLOCK_SKEW`] later.
fn dates(window: &FixedWindow, local_now: Timestamp) -> (u64, impl Iterator<Item = u64>) {
    let from = Timestamp::from_nanos(
        local_now.as_nanos().saturating_sub(u64::try_from(MAX_CLOCK_SKEW.as_nanos()).unwrap_or(u64::MAX)),
    );
    let until = local_now + MAX_CLOCK_SKEW;
    let next = move |end: &Timestamp| (*end <= until).then(|| window.restored_at(*end)).filter(|next| next > end);
    (from.as_micros(), std::iter::successors(Some(window.restored_at(from)), next).map(micros))
}

fn unit_name(unit: Calendar) -> &'static str {
    UNITS.into_iter().find(|(other, _)| *other == unit).map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(quota: &str) -> FixedWindow {
        FixedWindow::new(quota.parse().unwrap())
    }

    fn days(limit: u64) -> FixedWindow {
        FixedWindow::calendar(limit, Calendar::Day, "Europe/Berlin").unwrap()
    }

    #[test]
    fn parameters_are_parsed_back() {
        let first = window("5/s burst 9").with_window_start(WindowStart::FirstRequest);
        assert_eq!(first.parameters(), "5/1s*9+first");
        assert_eq!(days(5).parameters(), "5/day@Europe/Berlin");
        let months = FixedWindow::calendar(7, Calendar::Month, "UTC").unwrap();
        let weeks = FixedWindow::calendar(7, Calendar::Week, "america/ARGENTINA/buenos_aires").unwrap();
        for window in [window("5/s"), window("1/7ns"), first, days(5), weeks, months] {
            assert_eq!(FixedWindow::from_parameters(&window.parameters()), Some(window));
        }
        for text in
            ["", "5/1s", "5/1s*5+last", "5/day@", "5/day@Europe/Atlantis", "5/year@UTC", "0/day@UTC", "/day@UTC"]
        {
            assert_eq!(FixedWindow::from_parameters(text), None, "{text}");
        }
    }

    #[test]
    fn lengths_are_in_lowest_terms() {
        for (nanos, fraction) in [(1_000, (1, 1)), (1, (1, 1_000)), (1_500, (3, 2)), (1_016, (127, 125)), (60, (3, 50))]
        {
            assert_eq!(length(&Quota::new(1, Duration::from_nanos(nanos)).unwrap()), fraction);
        }
    }

    #[test]
    fn windows_that_a_double_cannot_count_are_not_supported() {
        assert_eq!(window("5/month").unsupported_reason(), None);
        assert_eq!(window("5/7ns").unsupported_reason(), None);
        let odd = Quota::new(5, Duration::from_secs(110 * 86_400) + Duration::from_nanos(1)).unwrap();
        assert!(FixedWindow::new(odd).unsupported_reason().is_some());
        assert_eq!(FixedWindow::new(odd).with_window_start(WindowStart::FirstRequest).unsupported_reason(), None);
        let long = Quota::new(5, Duration::from_secs(200 * 365 * 86_400)).unwrap();
        assert!(FixedWindow::new(long).unsupported_reason().is_some());
    }

    #[test]
    fn all_window_ends_within_a_day_are_sent() {
        let hours = |hours: u64| Timestamp::from_secs(hours * 3_600);
        // 2024-03-31 in Berlin, which has 23 hours: from 30 March 23:00 UTC to 31 March 22:00 UTC.
        let noon = hours(475_524);
        let micros = |hours: u64| hours * 3_600_000_000;
        let days = days(5);
        let (from, ends) = dates(&days, noon);
        assert_eq!(from, micros(475_500));
        assert_eq!(ends.collect::<Vec<_>>(), [micros(475_511), micros(475_534), micros(475_558)]);
        // There is no day before the first one.
        let (from, ends) = dates(&days, hours(1));
        assert_eq!((from, ends.collect::<Vec<_>>()), (0, vec![micros(23), micros(47)]));
        assert!(dates(&days, Timestamp::MAX).1.count() < 5);
    }

    #[test]
    fn a_share_keeps_the_windows() {
        assert_eq!(window("5/s").divided(2), window("2/s"));
        assert_eq!(
            window("5/s").with_window_start(WindowStart::FirstRequest).divided(9),
            window("1/s").with_window_start(WindowStart::FirstRequest)
        );
        assert_eq!(days(5).divided(2), days(2));
    }
}
