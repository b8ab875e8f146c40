//! Times as people write them: `200ms`, `5min`, `1 day`. The same as `diana_core::parse_duration` reads, as the test sees to;
//! that crate itself would have to be built twice for every user, once for the compiler.

/// Each unit: its nanoseconds and every name that is read.
const UNITS: &[(u64, &[&str])] = &[
    (1, &["ns", "nano", "nanos", "nanosecond", "nanoseconds"]),
    (1_000, &["us", "µs", "micro", "micros", "microsecond", "microseconds"]),
    (1_000_000, &["ms", "milli", "millis", "millisecond", "milliseconds"]),
    (1_000_000_000, &["s", "sec", "secs", "second", "seconds"]),
    (60_000_000_000, &["min", "m", "mins", "minute", "minutes"]),
    (3_600_000_000_000, &["h", "hr", "hour", "hours"]),
    (86_400_000_000_000, &["d", "day", "days"]),
    (604_800_000_000_000, &["w", "week", "weeks"]),
    (2_592_000_000_000_000, &["mo", "month", "months"]),
];

const KNOWN: &str = "ns, us, ms, s, min, h, day, week or month";

/// The nanoseconds of a time, or what is wrong with it.
pub(crate) fn nanos(text: &str) -> Result<u64, String> {
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
        return Err(format!("`{text}` has no unit; write one of {KNOWN}"));
    }
    // `M` could be a minute, a month or a million: it is none of them.
    let is_named = |known: &&str| known.eq_ignore_ascii_case(unit) && unit != "M";
    let (nanos, _) = UNITS
        .iter()
        .find(|(_, names)| names.iter().any(is_named))
        .ok_or_else(|| format!("`{unit}` is not a unit of time; write one of {KNOWN}"))?;
    count.checked_mul(*nanos).ok_or_else(|| format!("`{text}` is longer than 584 years"))
}

#[cfg(test)]
mod tests {
    use super::{UNITS, nanos};

    #[test]
    fn reads_what_rules_read_and_says_what_they_say() {
        let units = UNITS.iter().flat_map(|(_, names)| names.iter().copied());
        let others = ["", " ", "M", "fortnight", ".5s", ",5s", "S", "Min", "day s"];
        for unit in units.chain(others) {
            for count in ["", "0", "1", "90", " 7 ", "18446744073709551615", "99999999999999999999"] {
                let text = format!("{count}{unit}");
                let theirs = diana_core::parse_duration(&text).map(|time| time.as_nanos());
                match (nanos(&text), theirs) {
                    (Ok(ours), Ok(theirs)) => assert_eq!(u128::from(ours), theirs, "{text}"),
                    (Err(ours), Err(theirs)) => assert_eq!(format!("quota `{text}`: {ours}"), theirs.to_string()),
                    (ours, theirs) => panic!("`{text}`: {ours:?} here, {theirs:?} there"),
                }
            }
        }
    }
}
