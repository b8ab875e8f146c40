//! Formatted times for logs, computed once a second.

use diana_core::Timestamp;

/// A formatted date for a log, cached for its second.
#[derive(Debug, Default)]
pub struct LogTime {
    second: u64,
    text: String,
    format: &'static str,
}

impl LogTime {
    /// Formats a time as in the common log format: `15/Nov/2026:20:12:52 +0000`.
    pub fn common(&mut self, at: Timestamp) -> &str {
        self.formatted(at, "%d/%b/%Y:%H:%M:%S +0000")
    }

    /// Formats a time as ISO 8601, to the second and without a zone: `2026-11-15T20:12:52`.
    pub fn iso(&mut self, at: Timestamp) -> &str {
        self.formatted(at, "%Y-%m-%dT%H:%M:%S")
    }

    fn formatted(&mut self, at: Timestamp, format: &'static str) -> &str {
        let second = at.as_nanos() / 1_000_000_000;
        if self.second != second || self.format != format {
            // A `Timestamp` ends in the year 2554, far before jiff's does.
            let time = jiff::Timestamp::from_second(i64::try_from(second).unwrap_or(i64::MAX)).unwrap_or_default();
            self.text = time.strftime(format).to_string();
            (self.second, self.format) = (second, format);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_iso_dates() {
        // The output of `date -u -d @N`.
        for (seconds, iso) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (1_794_773_572, "2026-11-15T20:12:52"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(LogTime::default().iso(Timestamp::from_secs(seconds)), iso);
        }
    }

    #[test]
    fn caches_a_date_for_its_second_and_format() {
        let mut date = LogTime::default();
        assert_eq!(date.common(Timestamp::from_secs(1_794_773_572)), "15/Nov/2026:20:12:52 +0000");
        assert_eq!(date.common(Timestamp::from_millis(1_794_773_572_999)), "15/Nov/2026:20:12:52 +0000");
        assert_eq!(date.common(Timestamp::from_secs(1_794_773_573)), "15/Nov/2026:20:12:53 +0000");
        assert_eq!(date.iso(Timestamp::from_secs(1_794_773_573)), "2026-11-15T20:12:53");
    }
}
