//! Parses quotas: `100/s`, `5/10min`, `1 per 200ms`, `100/s burst 200`.

use super::{InvalidQuota, Quota, units};
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
        let permits = count("count", permits).map_err(fail)?;
        let period = units::parse_nanos(period).map_err(fail)?;
        // The constructors report which value is out of range; the text around it reports where it is.
        let within = |error: InvalidQuota| fail(error.to_string());
        let quota = Self::new(permits, Duration::from_nanos(period)).map_err(within)?;
        match burst {
            Some(burst) => quota.with_burst(count("burst", burst).map_err(fail)?).map_err(within),
            None => Ok(quota),
        }
    }
}

/// Parses an integer; underscores may group its digits.
fn count(what: &str, text: &str) -> Result<u64, String> {
    let digits = text.trim().replace('_', "");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("the {what} `{}` is not a whole number above 0", text.trim()));
    }
    digits.parse().map_err(|_| format!("the {what} `{digits}` is too large; at most {}", crate::MAX_PERMITS))
}
