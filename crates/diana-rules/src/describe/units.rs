//! Human-readable durations, rates and amounts of data.

use diana_core::Quota;
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

/// `100 a second`, `5 in 10 minutes`.
pub(super) fn rate(quota: Quota) -> String {
    match largest(quota.period()) {
        (1, one, _) => format!("{} {one}", quota.permits()),
        _ => format!("{} in {}", quota.permits(), duration(quota.period())),
    }
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

/// `512 KiB`, `12.5 MB`: the largest unit with at most one decimal place.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 6] =
        [(1 << 30, "GiB"), (1_000_000_000, "GB"), (1 << 20, "MiB"), (1_000_000, "MB"), (1 << 10, "KiB"), (1_000, "kB")];
    let fits = |(unit, _): &&(u64, &str)| count >= *unit && (u128::from(count) * 10).is_multiple_of(u128::from(*unit));
    match UNITS.iter().find(fits) {
        None => format!("{count} bytes"),
        Some((unit, name)) => match u128::from(count) * 10 / u128::from(*unit) {
            tenths if tenths.is_multiple_of(10) => format!("{} {name}", tenths / 10),
            tenths => format!("{}.{} {name}", tenths / 10, tenths % 10),
        },
    }
}

/// `512 KiB a second`.
pub(super) fn byte_rate(quota: Quota) -> String {
    match largest(quota.period()) {
        (1, one, _) => format!("{} {one}", bytes(quota.permits())),
        _ => format!("{} in {}", bytes(quota.permits()), duration(quota.period())),
    }
}
