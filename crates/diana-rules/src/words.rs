//! Amounts of data and lists in words.

use diana_core::Quota;
use diana_core::words::per;
use std::fmt;

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
pub(crate) fn byte_rate(quota: Quota) -> String {
    format!("{} {}", bytes(quota.permits()), per(quota.period()))
}

/// The maximum number of list entries to show.
const MAX_SHOWN: usize = 5;

/// Joins the first few values and the number of the remaining ones.
pub(crate) fn some(values: impl ExactSizeIterator<Item = String>, between: &str) -> String {
    let more = values.len().saturating_sub(MAX_SHOWN);
    let mut text = values.take(MAX_SHOWN).collect::<Vec<_>>().join(between);
    if more > 0 {
        text.push_str(&format!("{between}and {more} more"));
    }
    text
}

/// Joins values: `a`, `a and b`, `a, b and c`.
pub fn and(values: &[impl fmt::Display]) -> String {
    let texts = values.iter().map(ToString::to_string).collect::<Vec<_>>();
    match &*texts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
