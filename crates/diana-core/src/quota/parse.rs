//! Parses quotas (`100/s`, `5/10min`, `1 per 200ms`, `0.5/s`, `100/s burst 200`) and units of time.

use super::{InvalidQuota, Quota, greatest_common_divisor};
use std::str::FromStr;
use std::time::Duration;

/// The units: nanoseconds, printed name, and all accepted names.
const UNITS: &[(u64, &str, &[&str])] = &[
    (1, "ns", &["ns", "nano", "nanos", "nanosecond", "nanoseconds"]),
    (1_000, "us", &["us", "µs", "micro", "micros", "microsecond", "microseconds"]),
    (1_000_000, "ms", &["ms", "milli", "millis", "millisecond", "milliseconds"]),
    (1_000_000_000, "s", &["s", "sec", "secs", "second", "seconds"]),
    (60_000_000_000, "min", &["min", "m", "mins", "minute", "minutes"]),
    (3_600_000_000_000, "h", &["h", "hr", "hour", "hours"]),
    (86_400_000_000_000, "day", &["d", "day", "days"]),
    (604_800_000_000_000, "week", &["w", "week", "weeks"]),
    (2_592_000_000_000_000, "month", &["mo", "month", "months"]),
];

/// The units that error messages list.
const KNOWN: &str = "ns, us, ms, s, min, h, day, week or month";

impl FromStr for Quota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, InvalidQuota> {
        let fail = |problem: String| InvalidQuota::Text { text: text.to_owned(), problem };
        let (rate, burst) = match text.split_once("burst") {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let (permits, period) = rate
            .split_once('/')
            .or_else(|| rate.split_once(" per "))
            .ok_or_else(|| fail("expected a count per time, such as `100/s`, `5/10min` or `1 per 200ms`".to_owned()))?;
        let (permits, period) = whole(permits, parse_nanos(period)).map_err(fail)?;
        // The constructors report which value is out of range; the text around it reports where it is.
        let in_text = |error: InvalidQuota| fail(error.to_string());
        let quota = Self::new(permits, Duration::from_nanos(period)).map_err(in_text)?;
        match burst {
            Some(burst) => quota.with_burst(count("burst", burst).map_err(fail)?).map_err(in_text),
            None => Ok(quota),
        }
    }
}

/// Parses the count of a rate. A decimal count becomes a whole one in a longer period: `0.5/s` is `1/2s`.
///
/// The time per permit must be a whole number of nanoseconds: `1.5/s` has to be written as `3/2s`, which shows that
/// three permits may be granted at once.
fn whole(permits: &str, period: Result<u64, String>) -> Result<(u64, u64), String> {
    let text = permits.trim();
    let (digits, scale) = match text.split_once('.') {
        Some((digits, decimals)) if is_count(digits) && is_count(decimals) => {
            let decimals = decimals.replace('_', "");
            let decimals = decimals.trim_end_matches('0');
            if decimals.len() > MAX_DECIMALS {
                return Err(format!("the count `{text}` has more than {MAX_DECIMALS} decimal places"));
            }
            (format!("{digits}{decimals}"), decimals.bytes().fold(1, |scale, _| scale * 10))
        }
        _ => (text.to_owned(), 1),
    };
    let count = count("count", &digits)?;
    let period = period?;
    let divisor = greatest_common_divisor(scale, count).max(1);
    let (permits, times) = (count / divisor, scale / divisor);
    let longer = period.checked_mul(times).ok_or_else(|| format!("`{text}` is less than one in 584 years"))?;
    if times > 1 && longer.checked_rem(permits).is_some_and(|rest| rest > 0) {
        let (every, unit) = shortest(longer);
        return Err(format!("the count `{text}` is not exact; write `{permits}/{every}{unit}`"));
    }
    Ok((permits, longer))
}

/// The maximum number of decimal places of a count: a rate of one in some thirty years.
const MAX_DECIMALS: usize = 9;

fn is_count(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Parses an integer; underscores may group its digits.
fn count(what: &str, text: &str) -> Result<u64, String> {
    let digits = text.trim().replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("the {what} `{}` is not a whole number above 0", text.trim()));
    }
    digits.parse().map_err(|_| format!("the {what} `{digits}` is too large; expected at most {}", crate::MAX_PERMITS))
}

/// Returns the nanoseconds of one `name`, if it is a unit.
fn nanos_of(name: &str) -> Option<u64> {
    // `M` is ambiguous (minute, month, million), so it is rejected.
    let is_named = |known: &&str| known.eq_ignore_ascii_case(name) && name != "M";
    UNITS.iter().find(|(_, _, names)| names.iter().any(is_named)).map(|unit| unit.0)
}

/// Returns `nanos` as a count of the largest unit that divides it.
pub(super) fn shortest(nanos: u64) -> (u64, &'static str) {
    let (unit, name, _) = UNITS.iter().rev().find(|(unit, ..)| nanos.is_multiple_of(*unit)).unwrap_or(&UNITS[0]);
    (nanos / unit, name)
}

/// Parses a duration such as `200ms`, `10 min`, `day` (one day) to nanoseconds; the error is the problem.
pub(super) fn parse_nanos(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = (&text[..digits], text[digits..].trim());
    let count: u64 = match count {
        "" => 1,
        _ => count.parse().map_err(|_| format!("`{count}` is too large a number"))?,
    };
    if unit.starts_with(['.', ',']) {
        return Err(format!("`{text}` is not a whole number of units; write `1500ms` for one and a half seconds"));
    }
    if unit.is_empty() {
        return Err(format!("missing unit in `{text}`; expected one of {KNOWN}"));
    }
    let nanos = nanos_of(unit).ok_or_else(|| format!("unknown unit of time `{unit}`; expected one of {KNOWN}"))?;
    count.checked_mul(nanos).ok_or_else(|| format!("`{text}` is longer than 584 years"))
}
