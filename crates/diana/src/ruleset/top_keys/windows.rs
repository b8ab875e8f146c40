//! The heaviest keys of the last minute and the last hour: counters of short periods, which are merged when they are read.
//!
//! ```text
//!  minute:    10 s  10 s  10 s  10 s  10 s  (now)                 the closed periods and the current one
//!  hour:      5 min  5 min  ..  5 min  (now: the closed periods of 10 s are added to it)
//! ```
//!
//! So the "last minute" is 50 to 60 seconds, and the "last hour" 55 to 60 minutes.

use super::space_saving::{Counter, SpaceSaving, missing};
use diana_core::Timestamp;
use hashbrown::HashMap;
use std::array;
use std::ops::Range;

/// The length of a short period.
pub(super) const PERIOD_SECONDS: u64 = 10;
/// The closed short periods that are kept: those of a minute of the clock.
const SHORT: usize = 6;
/// How many of them belong to the last minute, with the current one.
const MINUTE: usize = 5;
/// The short periods of a long one.
const PERIODS_OF_LONG: u64 = 30;
/// The closed long periods of an hour.
const LONG: usize = 11;

/// The span of time that a list of keys is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Window {
    /// The last minute.
    Minute,
    /// The last hour.
    Hour,
}

/// The heaviest keys of a window, the heaviest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKeys {
    /// The number of requests, of all keys.
    pub total: u64,
    /// A count is wrong by at most this; keys without a counter have at most this count.
    pub max_error: u64,
    /// The heaviest keys.
    pub keys: Vec<TopKey>,
}

/// One of the heaviest keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopKey {
    /// The key, or the beginning of a long one.
    pub key: Vec<u8>,
    /// Whether only the beginning of the key is known.
    pub is_cut: bool,
    /// The number of its requests.
    pub count: u64,
    /// When it was first counted in the window, to ten seconds: the start of the period.
    pub since: Timestamp,
    /// Identifies the key, also if only its beginning is known.
    pub hash: u64,
}

/// One period of a window.
struct Period<'a> {
    total: u64,
    missed: u64,
    counters: &'a [Counter],
}

/// The counters of a closed period.
#[derive(Clone, Debug, Default)]
struct Closed {
    total: u64,
    missed: u64,
    counters: Box<[Counter]>,
}

/// The counters of the current and the closed periods.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// The number of the current short period.
    period: u64,
    current: SpaceSaving,
    short: [Closed; SHORT],
    /// The current long period, without the current short one.
    current_long: SpaceSaving,
    long: [Closed; LONG],
}

impl Windows {
    pub(super) fn new(period: u64) -> Self {
        Self {
            period,
            current: SpaceSaving::new(period),
            short: array::from_fn(|_| Closed::default()),
            current_long: SpaceSaving::new(period),
            long: array::from_fn(|_| Closed::default()),
        }
    }

    /// Counts a key. Returns `true` if it had no counter in this period.
    #[inline]
    pub(super) fn add(&mut self, period: u64, hash: u64, key: &[u8], weight: u64) -> bool {
        if period > self.period {
            self.advance(period);
        }
        self.current.add(hash, key, weight)
    }

    /// Counts a key in the current period.
    pub(super) fn add_to_current(&mut self, hash: u64, key: &[u8], weight: u64) {
        self.current.add(hash, key, weight);
    }

    /// Returns the key with the highest count in a range of the last short periods, and the current one.
    pub(super) fn heaviest(&self, periods: Range<u64>) -> Option<TopKey> {
        let closed =
            (1..).zip(&self.short).map(|(before, closed)| (self.period.checked_sub(before), &*closed.counters));
        let all = closed.chain([(Some(self.period), self.current.counters())]);
        let meant = all.filter(|(period, _)| period.is_some_and(|period| periods.contains(&period)));
        let mut counts: HashMap<u64, (&Counter, u64)> = HashMap::new();
        for counter in meant.flat_map(|(_, counters)| counters) {
            counts.entry(counter.hash).or_insert((counter, 0)).1 += counter.count;
        }
        let (counter, count) = counts.into_values().max_by_key(|(counter, count)| (*count, counter.hash))?;
        Some(TopKey {
            key: counter.text().to_vec(),
            is_cut: counter.is_cut,
            hash: counter.hash,
            count,
            since: start_of(counter.since),
        })
    }

    /// Closes the periods before `period`.
    #[cold]
    pub(super) fn advance(&mut self, period: u64) {
        // After an hour without requests, everything is over.
        if period.saturating_sub(self.period) > PERIODS_OF_LONG * (LONG as u64 + 1) {
            *self = Self::new(period);
            return;
        }
        while self.period < period {
            let total = self.current.total();
            self.current_long.merge(self.current.counters(), total);
            self.short.rotate_right(1);
            self.short[0] = Closed { total, missed: 0, counters: self.current.counters().into() };
            self.period += 1;
            self.current.clear(self.period);
            if self.period.is_multiple_of(PERIODS_OF_LONG) {
                let (total, missed) = (self.current_long.total(), self.current_long.missed());
                self.long.rotate_right(1);
                self.long[0] = Closed { total, missed, counters: self.current_long.counters().into() };
                self.current_long.clear(self.period);
            }
        }
    }

    /// Returns `true` if there was no request in the last hour.
    pub(super) fn is_empty(&self) -> bool {
        self.periods(Window::Hour).all(|period| period.total == 0)
    }

    /// Returns the number of requests in a window.
    pub(super) fn total(&self, window: Window) -> u64 {
        self.periods(window).map(|period| period.total).sum()
    }

    /// Returns the heaviest keys of a window.
    pub(super) fn top(&self, window: Window, limit: usize) -> TopKeys {
        /// The sum of a key's counters.
        struct Sum<'a> {
            counter: &'a Counter,
            count: u64,
            error: u64,
            /// The sum of what each period that has the key may miss of it.
            missing: u64,
            since: u64,
        }
        let missed = self.periods(window).map(|period| period.missed).sum::<u64>();
        let all_missing = self.periods(window).map(|period| missing(period.counters)).sum::<u64>();
        let mut sums: HashMap<u64, Sum<'_>> = HashMap::new();
        for period in self.periods(window) {
            let missing = missing(period.counters);
            for counter in period.counters {
                let first = Sum { counter, count: 0, error: 0, missing: 0, since: u64::MAX };
                let sum = sums.entry(counter.hash).or_insert(first);
                sum.since = sum.since.min(counter.since);
                sum.count += counter.count;
                sum.error += counter.error;
                sum.missing += missing;
            }
        }
        let mut sums = sums.into_values().collect::<Vec<_>>();
        sums.sort_unstable_by(|one, other| (other.count, one.counter.text()).cmp(&(one.count, other.counter.text())));
        sums.truncate(limit);
        // A count is too high by its errors, or too low by what the periods without it may have had of it.
        let errors = sums.iter().map(|sum| sum.error.max(all_missing - sum.missing + missed));
        let max_error = errors.chain([all_missing + missed]).max().unwrap_or_default();
        let keys = sums.iter().map(|sum| TopKey {
            key: sum.counter.text().to_vec(),
            is_cut: sum.counter.is_cut,
            count: sum.count,
            hash: sum.counter.hash,
            since: start_of(sum.since),
        });
        TopKeys { total: self.total(window), max_error, keys: keys.collect() }
    }

    fn periods(&self, window: Window) -> impl Iterator<Item = Period<'_>> {
        let closed = match window {
            Window::Minute => &self.short[..MINUTE],
            Window::Hour => &self.long[..],
        };
        let long = (window == Window::Hour).then_some(&self.current_long);
        let live = [Some(&self.current), long].into_iter().flatten();
        let live = live.map(|live| Period { total: live.total(), missed: live.missed(), counters: live.counters() });
        let past = closed.iter();
        live.chain(past.map(|past| Period { total: past.total, missed: past.missed, counters: &past.counters }))
    }
}

fn start_of(period: u64) -> Timestamp {
    Timestamp::from_secs(period.saturating_mul(PERIOD_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap as Exact;

    fn hash(key: u8) -> u64 {
        u64::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    fn counts(top: &TopKeys) -> Vec<(&[u8], u64)> {
        top.keys.iter().map(|key| (&*key.key, key.count)).collect()
    }

    #[test]
    fn a_key_is_counted_since_its_first_period() {
        let mut windows = Windows::new(1_000);
        let since = |windows: &Windows, window| {
            let top = windows.top(window, 10);
            top.keys.iter().map(|key| key.since.as_nanos() / 1_000_000_000 / PERIOD_SECONDS).collect::<Vec<_>>()
        };
        for period in 1_002..1_012 {
            windows.add(period, hash(1), b"alice", 3);
        }
        windows.add(1_011, hash(2), b"bob", 2);
        assert_eq!(since(&windows, Window::Hour), [1_002, 1_011]);
        assert_eq!(since(&windows, Window::Minute), [1_006, 1_011]);
        // A long period begins with 1,020.
        windows.add(1_031, hash(1), b"alice", 1);
        windows.advance(1_100);
        assert_eq!(since(&windows, Window::Hour), [1_002, 1_011]);
    }

    #[test]
    fn keys_leave_the_minute_and_then_the_hour() {
        let mut windows = Windows::new(1_000);
        windows.add(1_000, hash(1), b"alice", 3);
        windows.add(1_003, hash(2), b"bob", 2);
        assert_eq!(counts(&windows.top(Window::Minute, 10)), [(&b"alice"[..], 3), (b"bob", 2)]);
        windows.advance(1_006);
        assert_eq!(counts(&windows.top(Window::Minute, 10)), [(&b"bob"[..], 2)]);
        assert_eq!(counts(&windows.top(Window::Hour, 10)), [(&b"alice"[..], 3), (b"bob", 2)]);
        assert_eq!((windows.total(Window::Minute), windows.total(Window::Hour)), (2, 5));
        windows.advance(1_300);
        assert_eq!(windows.total(Window::Hour), 5);
        windows.advance(1_000 + 360);
        assert!(windows.is_empty(), "{windows:?}");
    }

    #[test]
    fn a_long_pause_forgets_everything() {
        let mut windows = Windows::new(7);
        windows.add(7, hash(1), b"alice", 3);
        assert!(windows.add(u64::MAX, hash(1), b"alice", 1));
        assert_eq!(windows.total(Window::Hour), 1);
    }

    #[test]
    fn the_heaviest_key_of_a_minute_of_the_clock_is_found_after_it() {
        let mut windows = Windows::new(60);
        for (period, key, count) in [(60, 1, 5), (65, 1, 4), (63, 2, 8), (66, 2, 100)] {
            windows.add(period, hash(key), &[key], count);
        }
        let heaviest = windows.heaviest(60..66).unwrap();
        assert_eq!((heaviest.key, heaviest.count), (vec![1], 9), "without what came after the minute");
        assert_eq!(windows.heaviest(54..60), None);
    }

    #[test]
    fn a_time_before_the_last_one_counts_now() {
        let mut windows = Windows::new(50);
        windows.add(50, hash(1), b"alice", 1);
        windows.add(49, hash(1), b"alice", 1);
        assert_eq!(windows.total(Window::Minute), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn counts_are_within_their_error(
            requests in prop::collection::vec((0..4_u64, prop_oneof![0..5_u8, 0..=255_u8]), 1..4_000),
        ) {
            let mut windows = Windows::new(0);
            let (mut period, mut all) = (0, Vec::new());
            for (index, (later, key)) in requests.into_iter().enumerate() {
                if index % 100 == 0 {
                    period += later;
                }
                windows.add(period, hash(key), &[key], 1);
                all.push((period, key));
            }
            let minute = |at: u64| at + MINUTE as u64 >= period;
            let hour = |at: u64| at / PERIODS_OF_LONG + LONG as u64 >= period / PERIODS_OF_LONG;
            let spans: [(Window, &dyn Fn(u64) -> bool); 2] = [(Window::Minute, &minute), (Window::Hour, &hour)];
            for (window, is_in) in spans {
                let mut exact = Exact::<u8, u64>::new();
                for (_, key) in all.iter().filter(|(at, _)| is_in(*at)) {
                    *exact.entry(*key).or_default() += 1;
                }
                let total = exact.values().sum::<u64>();
                let top = windows.top(window, usize::MAX);
                prop_assert_eq!(top.total, total);
                prop_assert!(top.max_error <= total / 32, "{} of {total}", top.max_error);
                for (key, count) in exact {
                    let reported = top.keys.iter().find(|top| top.key == [key]).map_or(0, |top| top.count);
                    prop_assert!(reported.abs_diff(count) <= top.max_error, "{reported}, not {count}");
                }
            }
        }
    }
}
