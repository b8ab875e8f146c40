//! Parses quotas: `100/s`, `5/10min`, `1 per 200ms`, `0.5/s`, `100/s burst 200`.

use super::{InvalidQuota, Quota, greatest_common_divisor, units};
use std::str::FromStr;
use std::time::Duration;

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
            .ok_or_else(|| fail("write a count and a time, as `100/s`, `5/10min` or `1 per 200ms`".to_owned()))?;
        let period = units::parse_nanos(period);
        let (permits, period) = whole(permits, period).map_err(fail)?;
        // The constructors report which value is out of range; the text around it reports where it is.
        let within = |error: InvalidQuota| fail(error.to_string());
        let quota = Self::new(permits, Duration::from_nanos(period)).map_err(within)?;
        match burst {
            Some(burst) => quota.with_burst(count("burst", burst).map_err(fail)?).map_err(within),
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
            if decimals.len() > MOST_DECIMALS {
                return Err(format!("the count `{text}` has more than {MOST_DECIMALS} decimal places"));
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
        let (every, unit) = units::shortest(longer);
        return Err(format!("the count `{text}` is not exact; write `{permits}/{every}{unit}`"));
    }
    Ok((permits, longer))
}

/// The maximum number of decimal places of a count: a rate of one in some thirty years.
const MOST_DECIMALS: usize = 9;

fn is_count(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit() || b == b'_')
}

/// Parses an integer; underscores may group its digits.
fn count(what: &str, text: &str) -> Result<u64, String> {
    let digits = text.trim().replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("the {what} `{}` is not a whole number above 0", text.trim()));
    }
    digits.parse().map_err(|_| format!("the {what} `{digits}` is too large; at most {}", crate::MAX_PERMITS))
}
