//! Amounts of data in words.

use diana_core::{Quota, words};

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
    format!("{} {}", bytes(quota.permits()), words::per(quota.period()))
}
