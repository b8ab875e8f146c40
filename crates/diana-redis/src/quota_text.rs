//! Quotas and durations as short text without blanks, as stored in states: `100/1s*200` is 100 per second with a burst of 200.

use diana_core::Quota;
use std::time::Duration;

/// Units with their nanoseconds, the largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("m", 1_000_000), ("u", 1_000), ("n", 1)];

/// Formats a duration in the largest unit of which it is a whole number.
pub(crate) fn duration_text(duration: Duration) -> String {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let (unit, size) = UNITS.into_iter().find(|(_, size)| nanos.is_multiple_of(*size)).unwrap_or(("n", 1));
    format!("{}{unit}", nanos / size)
}

pub(crate) fn duration_from_text(text: &str) -> Option<Duration> {
    let (unit, size) = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit))?;
    let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
    Some(Duration::from_nanos(count.checked_mul(size)?))
}

/// Formats a quota as `permits/period*burst`.
pub(crate) fn quota_text(quota: &Quota) -> String {
    format!("{}/{}*{}", quota.permits(), duration_text(quota.period()), quota.burst())
}

pub(crate) fn quota_from_text(text: &str) -> Option<Quota> {
    let (permits, rest) = text.split_once('/')?;
    let (period, burst) = rest.split_once('*')?;
    let quota = Quota::new(permits.parse().ok()?, duration_from_text(period)?).ok()?;
    quota.with_burst(burst.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_parsed_back() {
        for nanos in [1, 1_500, 2_000_000, 60_000_000_000, u64::MAX] {
            let quota = Quota::new(7, Duration::from_nanos(nanos)).unwrap().with_burst(9).unwrap();
            assert_eq!(quota_from_text(&quota_text(&quota)), Some(quota));
        }
        assert_eq!(quota_text(&Quota::per_second(100).unwrap()), "100/1s*100");
    }

    #[test]
    fn an_invalid_quota_is_rejected() {
        for text in
            ["", "1", "1/s", "1/1s", "0/1s*1", "1/0s*1", "1/1s*0", "1/1x*1", "a/1s*1", "1/99999999999999999999s*1"]
        {
            assert_eq!(quota_from_text(text), None, "{text}");
        }
    }
}
