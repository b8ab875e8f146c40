//! Durations and rates in words, for descriptions of limits.

use crate::Quota;
use std::time::Duration;

/// The units of time: nanoseconds, singular, and the name after a number.
const TIMES: [(u128, &str, &str); 9] = [
    (2_592_000_000_000_000, "a month", "months"),
    (604_800_000_000_000, "a week", "weeks"),
    (86_400_000_000_000, "a day", "days"),
    (3_600_000_000_000, "an hour", "hours"),
    (60_000_000_000, "a minute", "minutes"),
    (1_000_000_000, "a second", "seconds"),
    (1_000_000, "a millisecond", "ms"),
    (1_000, "a microsecond", "µs"),
    (1, "a nanosecond", "ns"),
];

/// The description of a window whose counts are dropped all at once.
pub(crate) const TWICE: &str = "up to twice that across an edge";

/// Returns a duration as a multiple of the largest unit that divides it.
fn largest(time: Duration) -> (u128, &'static str, &'static str) {
    let nanos = time.as_nanos();
    let divides = |unit: &&(u128, &str, &str)| nanos >= unit.0 && nanos.is_multiple_of(unit.0);
    let (unit, one, several) = TIMES.iter().find(divides).unwrap_or(&TIMES[8]);
    (nanos / unit, one, several)
}

/// Describes a duration: `2 seconds`, `200ms`, `1 minute`.
pub fn duration(time: Duration) -> String {
    match largest(time) {
        (count, _, short @ ("ms" | "µs" | "ns")) => format!("{count}{short}"),
        (1, one, _) => format!("1 {}", bare(one)),
        (count, _, several) => format!("{count} {several}"),
    }
}

/// Describes a rate: `100 a second`, `5 in 10 minutes`.
pub fn rate(quota: Quota) -> String {
    format!("{} {}", quota.permits(), per(quota.period()))
}

/// Describes a period after a number: `a second`, `in 10 minutes`.
pub fn per(period: Duration) -> String {
    match largest(period) {
        (1, one, _) => one.to_owned(),
        _ => format!("in {}", duration(period)),
    }
}

/// Describes a limit of which `at_once` may pass at once, as in `at most 10 in any minute`.
pub(crate) fn at_most(quota: Quota, at_once: u64) -> String {
    format!("at most {} in any {}", at_once.saturating_add(quota.permits()), period(quota.period()))
}

/// Describes a period after `every` or `any`: `minute`, `10 minutes`.
pub fn period(period: Duration) -> String {
    match largest(period) {
        (1, one, _) => bare(one).to_owned(),
        _ => duration(period),
    }
}

fn bare(one: &str) -> &str {
    one.split_once(' ').map_or(one, |(_, unit)| unit)
}
