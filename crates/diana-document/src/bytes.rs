//! Byte sizes as people write them: `512KiB`, `10MB`, and rates such as `512KiB/s` or `100Mbit/s`.

use crate::scalar::quota_problem;
use diana_core::{MAX_PERMITS, Quota, parse_duration};

/// Parses a byte rate, as in `bandwidth`: `512KiB/s`, `100Mbit/s`, `1 GiB/min`. A permit is a byte.
///
/// ```
/// use diana_document::bytes::parse_byte_rate;
///
/// assert_eq!(parse_byte_rate("50KiB/s").unwrap().permits(), 51_200);
/// assert_eq!(parse_byte_rate("50").unwrap_err().to_string(), "invalid rate `50`; expected an amount per time, such as 512KiB/s");
/// ```
///
/// # Errors
/// Returns the problem, and a suggested fix.
pub fn parse_byte_rate(text: &str) -> Result<Quota, InvalidBytes> {
    let Some((bytes, period)) = text.split_once('/') else {
        return Err(InvalidBytes(format!("invalid rate `{text}`; expected an amount per time, such as 512KiB/s")));
    };
    let invalid = |error| InvalidBytes(quota_problem(error));
    let period = parse_duration(period).map_err(invalid)?;
    Quota::new(parse_byte_size(bytes)?, period).map_err(invalid)
}

/// The reason why a text is not a byte size or a byte rate: the problem, and a suggested fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBytes(String);

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

/// Parses a size in bytes: `512KiB`, `10 MB`.
///
/// # Errors
/// Returns the problem, and a suggested fix.
pub fn parse_byte_size(text: &str) -> Result<u64, InvalidBytes> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '_').unwrap_or(text.len());
    let Ok(count) = text[..digits].replace('_', "").parse::<u64>() else {
        let what = format!("invalid amount of data `{text}`; expected a whole number and a unit, such as 512KiB");
        return Err(InvalidBytes(what));
    };
    let unit = text[digits..].trim();
    if unit.is_empty() {
        return Err(InvalidBytes(format!("missing unit in `{text}`; expected one of {KNOWN}")));
    }
    let Some((_, bits)) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) else {
        return Err(InvalidBytes(format!("unknown unit of data `{unit}`; expected one of {KNOWN}")));
    };
    match u64::try_from(u128::from(count) * bits / 8) {
        Ok(bytes @ 1..=MAX_PERMITS) => Ok(bytes),
        Ok(0) => Err(InvalidBytes(format!("`{text}` is less than a byte"))),
        _ => Err(InvalidBytes(format!("`{text}` is more than {MAX_PERMITS} bytes"))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn parses_amounts_and_rates() {
        assert_eq!(parse_byte_size("512KiB"), Ok(524_288));
        assert_eq!(parse_byte_size("10 MB"), Ok(10_000_000));
        assert_eq!(parse_byte_size("1_000B"), Ok(1_000));
        assert_eq!(parse_byte_rate("100Mbit/s").unwrap().permits(), 12_500_000);
        assert_eq!(parse_byte_rate("1GiB/min").unwrap().period().as_secs(), 60);
    }

    #[test]
    fn reports_invalid_amounts_and_rates() {
        for (text, expected) in [
            ("512", "missing unit"),
            ("512 furlongs", "unknown unit of data `furlongs`"),
            ("KiB", "invalid amount of data"),
            ("1.5MiB", "unknown unit of data `.5MiB`"),
            ("0KiB", "is less than a byte"),
            ("7bit", "is less than a byte"),
            ("99999999999GiB", "is more than"),
        ] {
            let problem = parse_byte_size(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
        assert!(parse_byte_rate("512KiB").unwrap_err().to_string().contains("invalid rate"));
    }
}
