//! The `Date` header of responses, computed at each tick of the timers.

use crate::coarse_timer::Deadlines;
use diana_core::{Clock, SystemClock};
use http::HeaderValue;
use std::cell::RefCell;
use std::time::{Duration, SystemTime};

/// The `Date` header of the last response.
struct Last {
    /// The time of the worker's clock when the system's clock was read.
    tick: u64,
    value: HeaderValue,
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last { tick: u64::MAX, value: HeaderValue::from_static("") }) };
}

/// Calls `act` with the current time for the HTTP `Date` header (RFC 9110, section 5.6.7):
/// `Sun, 15 Nov 2026 21:33:15 GMT`. The clock is read once a tick, so the time may be a tenth of a second late.
pub(crate) fn with_date<T>(clock: &Deadlines, act: impl FnOnce(&HeaderValue) -> T) -> T {
    LAST.with_borrow_mut(|last| {
        let tick = clock.now();
        if last.tick != tick {
            last.tick = tick;
            let date = http_date(SystemClock.now().as_nanos() / 1_000_000_000);
            last.value = HeaderValue::try_from(date).unwrap_or(HeaderValue::from_static(""));
        }
        act(&last.value)
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
