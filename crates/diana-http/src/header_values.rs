//! Times and numbers as values of headers: whole seconds, rounded up, so that no client retries too early.
//!
//! It is a module of its own since both the headers and the cache of their constant parts need it.

use diana::{Answer, Retry};
use http::HeaderValue;
use std::time::Duration;

/// Returns the seconds until a limit is reset, whether it granted or denied.
pub(crate) fn reset(answer: &Answer) -> Option<u64> {
    let time = answer.status().reset;
    (time > Duration::ZERO).then(|| whole_seconds(time))
}

/// Returns seconds, rounded up.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// Returns the seconds until a retry makes sense; `None` if it never does.
pub(crate) fn retry_after(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(time) => Some(whole_seconds(time)),
        // It is unknown when a permit is released; usually soon.
        Retry::WhenReleased => Some(1),
        Retry::Never => None,
    }
}

/// Returns a number as a header value, in one allocation; `HeaderValue::from` takes two.
pub(crate) fn number(number: u64) -> HeaderValue {
    let digits = HeaderValue::from_str(itoa::Buffer::new().format(number));
    digits.unwrap_or_else(|_| HeaderValue::from_static("0"))
}
