//! The `Date` header of responses, computed once a second.

use diana::{Clock, SystemClock};
use http::HeaderValue;
use std::cell::RefCell;
use std::time::{Duration, SystemTime};

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
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_http_dates() {
        // RFC 9110, section 5.6.7, and the output of `date -u -d @N`.
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(http_date(1_794_773_572), "Sun, 15 Nov 2026 20:12:52 GMT");
    }
}
