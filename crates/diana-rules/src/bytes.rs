//! Byte sizes as people write them: `512KiB`, `10MB`, and rates such as `512KiB/s` or `100Mbit/s`.

use crate::scalar::wrong_quota;
use diana_core::{MAX_PERMITS, Quota, parse_duration};
use std::fmt;

/// Parses a byte rate, as in `bandwidth`: `512KiB/s`, `100Mbit/s`, `1 GiB/min`. A permit is a byte.
///
/// ```
/// use diana_rules::parse_byte_rate;
///
/// assert_eq!(parse_byte_rate("50KiB/s").unwrap().permits(), 51_200);
/// assert_eq!(parse_byte_rate("50").unwrap_err().to_string(), "`50` is no rate; write an amount and a time, as 512KiB/s");
/// ```
///
/// # Errors
/// Returns the problem, and a suggested fix.
pub fn parse_byte_rate(text: &str) -> Result<Quota, InvalidByteRate> {
    rate(text).map_err(InvalidByteRate)
}

/// The reason why a text is not a byte rate: the problem, and a suggested fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidByteRate(String);

impl fmt::Display for InvalidByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidByteRate {}

/// Each unit and its size in bits.
const UNITS: [(&str, u128); 13] = [
    ("b", 8),
    ("byte", 8),
    ("bytes", 8),
    ("kb", 8 * 1_000),
    ("mb", 8 * 1_000_000),
    ("gb", 8 * 1_000_000_000),
    ("kib", 8 << 10),
    ("mib", 8 << 20),
    ("gib", 8 << 30),
    ("kbit", 1_000),
    ("mbit", 1_000_000),
    ("gbit", 1_000_000_000),
    ("bit", 1),
];
const KNOWN: &str = "B, kB, MB, GB, KiB, MiB, GiB, kbit, Mbit or Gbit";

/// Parses a size in bytes. The error is the problem.
pub(crate) fn amount(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '_').unwrap_or(text.len());
    let count = text[..digits].replace('_', "").parse::<u64>();
    let count =
        count.map_err(|_| format!("`{text}` is no amount of data; write a whole number and a unit, as 512KiB"))?;
    let unit = text[digits..].trim();
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit; write one of {KNOWN}"));
    }
    let bits = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, bits)| *bits);
    let bits = bits.ok_or_else(|| format!("`{unit}` is no unit of data; write one of {KNOWN}"))?;
    let bytes = u128::from(count) * bits / 8;
    match u64::try_from(bytes) {
        Ok(bytes @ 1..=MAX_PERMITS) => Ok(bytes),
        Ok(0) => Err(format!("`{text}` is less than a byte")),
        _ => Err(format!("`{text}` is more than {MAX_PERMITS} bytes")),
    }
}

/// Parses a rate as bytes per period. The error is the problem.
pub(crate) fn rate(text: &str) -> Result<Quota, String> {
    let split =
        text.split_once('/').ok_or_else(|| format!("`{text}` is no rate; write an amount and a time, as 512KiB/s"));
    let (bytes, period) = split?;
    let period = parse_duration(period).map_err(wrong_quota)?;
    Quota::new(amount(bytes)?, period).map_err(wrong_quota)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_rates_are_read() {
        assert_eq!(amount("512KiB"), Ok(524_288));
        assert_eq!(amount("10 MB"), Ok(10_000_000));
        assert_eq!(amount("1_000B"), Ok(1_000));
        assert_eq!(rate("100Mbit/s").unwrap().permits(), 12_500_000);
        assert_eq!(rate("1GiB/min").unwrap().period().as_secs(), 60);
    }

    #[test]
    fn nonsense_is_told() {
        for (text, said) in [
            ("512", "has no unit"),
            ("512 furlongs", "`furlongs` is no unit of data"),
            ("KiB", "is no amount of data"),
            ("1.5MiB", "`.5MiB` is no unit of data"),
            ("0KiB", "is less than a byte"),
            ("7bit", "is less than a byte"),
            ("99999999999GiB", "is more than"),
        ] {
            let wrong = amount(text).unwrap_err();
            assert!(wrong.contains(said), "{text}: {wrong}");
        }
        assert!(rate("512KiB").unwrap_err().contains("is no rate"));
    }
}
