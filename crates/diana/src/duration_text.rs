//! Durations in messages.

use std::time::Duration;

/// Formats a duration: rounded up to three digits, in its largest unit.
pub(crate) fn time(duration: Duration) -> String {
    const UNITS: [(u128, &str); 6] = [
        (86_400_000_000_000, "day"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "min"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
    ];
    let nanos = duration.as_nanos();
    // Rounding up may reach a larger unit: an hour less a few nanoseconds is not 60 minutes.
    let smaller = UNITS.into_iter().skip(1).map(|(unit, _)| unit).chain([1]);
    let reaches = |unit: u128, smaller: u128| (nanos * 1_000).div_ceil(smaller) * smaller >= unit * 1_000;
    let largest = UNITS.into_iter().zip(smaller).find(|((unit, _), smaller)| reaches(*unit, *smaller));
    let (unit, name) = largest.map_or((1, "ns"), |(unit, _)| unit);
    let thousandths = (nanos * 1_000).div_ceil(unit);
    let (whole, rest) = (thousandths / 1_000, thousandths % 1_000);
    let rest = format!("{rest:03}");
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { format!("{whole}{name}") } else { format!("{whole}.{rest}{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_rounded_up_in_its_largest_unit() {
        let cases = [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (1_000_000_001, "1.001s"),
            (90_000_000_000, "1.5min"),
            (59_999_000_000, "59.999s"),
            (59_999_000_001, "1min"),
            (3_599_999_999_999, "1h"),
        ];
        for (nanos, text) in cases {
            assert_eq!(time(Duration::from_nanos(nanos)), text);
        }
    }
}
