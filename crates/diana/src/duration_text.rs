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
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| nanos >= *unit).unwrap_or((1, "ns"));
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
        let cases =
            [(0, "0ns"), (999, "999ns"), (1_500, "1.5us"), (1_000_000_001, "1.001s"), (90_000_000_000, "1.5min")];
        for (nanos, text) in cases {
            assert_eq!(time(Duration::from_nanos(nanos)), text);
        }
    }
}
