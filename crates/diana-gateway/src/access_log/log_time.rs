//! Formatted dates, computed once a second.

use diana::{Clock, SystemClock, Timestamp};
use http::HeaderValue;
use std::cell::RefCell;

/// A formatted date for a log, cached for its second.
#[derive(Debug, Default)]
pub struct LogTime {
    second: u64,
    text: String,
    is_iso: bool,
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl LogTime {
    /// Formats a time as in the common log format: `15/Nov/2026:20:12:52 +0000`.
    pub fn common(&mut self, at: Timestamp) -> &str {
        self.format(at, false)
    }

    /// Formats a time as ISO 8601, to the second and without a zone: `2026-11-15T20:12:52`.
    pub fn iso(&mut self, at: Timestamp) -> &str {
        self.format(at, true)
    }

    fn format(&mut self, at: Timestamp, is_iso: bool) -> &str {
        let second = at.as_nanos() / 1_000_000_000;
        if self.text.is_empty() || self.second != second || self.is_iso != is_iso {
            let (year, month, day) = civil(second / 86_400);
            let (hour, minute, rest) = (second / 3_600 % 24, second / 60 % 60, second % 60);
            self.text = if is_iso {
                format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{rest:02}", month + 1)
            } else {
                format!("{day:02}/{}/{year:04}:{hour:02}:{minute:02}:{rest:02} +0000", MONTHS[month])
            };
            (self.second, self.is_iso) = (second, is_iso);
        }
        &self.text
    }
}

/// Returns the current time for the HTTP `Date` header (RFC 9110, section 5.6.7): `Sun, 15 Nov 2026 21:33:15 GMT`.
/// Computed once a second.
pub(crate) fn date_header() -> HeaderValue {
    thread_local! {
        static LAST: RefCell<(u64, HeaderValue)> = const { RefCell::new((u64::MAX, HeaderValue::from_static(""))) };
    }
    let second = SystemClock.now().as_nanos() / 1_000_000_000;
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second {
            *last = second;
            *text = HeaderValue::try_from(http_date(second)).unwrap_or(HeaderValue::from_static(""));
        }
        text.clone()
    })
}

fn http_date(second: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1970-01-01 was a Thursday
    let days = second / 86_400;
    let (year, month, day) = civil(days);
    let weekday = DAYS[usize::try_from(days % 7).unwrap_or_default()];
    let (hour, minute, second) = (second / 3_600 % 24, second / 60 % 60, second % 60);
    format!("{weekday}, {day:02} {} {year:04} {hour:02}:{minute:02}:{second:02} GMT", MONTHS[month])
}

/// Returns the year, the month (from 0) and the day (from 1) of a day counted from 1970-01-01.
///
/// Years that begin in March end with the leap day, so each five months have 153 days.
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468; // since 0000-03-01
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    (year, usize::try_from(month).unwrap_or_default(), day)
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
    fn formats_http_dates() {
        // RFC 9110, section 5.6.7, and the output of `date -u -d @N`.
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_794_773_572), "Sun, 15 Nov 2026 20:12:52 GMT");
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
