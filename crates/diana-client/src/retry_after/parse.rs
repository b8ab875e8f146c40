//! Parses the retry time of a response.

use http::header::{DATE, HeaderMap, HeaderName, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use std::time::Duration;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Returns how long a response asks to pause. Invalid values are ignored.
pub(super) fn pause(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let is_denied = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let retry_after = if is_denied { retry_after(headers) } else { None };
    // A successful response may also report that no permits are left. `Retry-After` is more precise: `t` of `RateLimit`
    // is when the limit is reset, and enough permits for one request come back earlier.
    retry_after.or_else(|| exhausted(headers)).filter(|time| !time.is_zero())
}

/// Parses seconds or a date; the date is taken relative to the response's own, as clocks differ.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Some(seconds) = number(value) {
        return Some(Duration::from_secs(seconds));
    }
    let time = httpdate::parse_http_date(value).ok()?;
    let now = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    time.duration_since(now).ok()
}

/// Returns the longest time for which a limit of `RateLimit: "a";r=0;t=31, "b";r=7` is exhausted.
fn exhausted(headers: &HeaderMap) -> Option<Duration> {
    let fields = headers.get_all(RATE_LIMIT).into_iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    let limits = fields.flat_map(|field| outside_strings(field, ','));
    limits.filter_map(reset_seconds).max().map(Duration::from_secs)
}

/// Returns the seconds until an exhausted limit is reset.
fn reset_seconds(limit: &str) -> Option<u64> {
    let (mut remaining, mut time) = (None, None);
    for parameter in outside_strings(limit, ';').skip(1) {
        match parameter.trim().split_once('=') {
            Some(("r", value)) => remaining = number(value),
            Some(("t", value)) => time = number(value),
            _ => {}
        }
    }
    time.filter(|_| remaining == Some(0))
}

/// Splits a text at separators outside of strings (RFC 9651), in which `\"` is an escaped quote.
fn outside_strings(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_string, mut is_escaped) = (false, false);
    text.split(move |character| {
        let was_escaped = is_escaped;
        is_escaped = is_string && !was_escaped && character == '\\';
        if character == '"' && !was_escaped {
            is_string = !is_string;
        }
        character == separator && !is_string
    })
}

/// Parses digits only; saturates.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::from(u32::MAX)).min(u64::from(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(status: u16, fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        pause(StatusCode::from_u16(status).unwrap(), &headers).map(|time| time.as_secs())
    }

    #[test]
    fn reads_retry_after_of_denials_only() {
        assert_eq!(seconds(429, &[("retry-after", "120")]), Some(120));
        assert_eq!(seconds(503, &[("retry-after", " 7 ")]), Some(7));
        assert_eq!(seconds(301, &[("retry-after", "120")]), None);
        let date = ("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT");
        assert_eq!(seconds(503, &[date, ("date", "Wed, 21 Oct 2015 07:28:00 GMT")]), Some(30));
        assert_eq!(seconds(503, &[date, ("date", "Wed, 21 Oct 2015 07:29:00 GMT")]), None);
        assert_eq!(seconds(503, &[date]), None);
        for invalid in ["", "0", "-1", "1.5", "soon", "+3", "1, 2"] {
            assert_eq!(seconds(429, &[("retry-after", invalid)]), None, "{invalid}");
        }
        assert_eq!(seconds(429, &[("retry-after", "99999999999999999999999")]), Some(u64::from(u32::MAX)));
    }

    #[test]
    fn reads_exhausted_rate_limits_of_any_status() {
        assert_eq!(seconds(200, &[("ratelimit", "\"a\";r=0;t=31")]), Some(31));
        assert_eq!(seconds(200, &[("ratelimit", "\"a\";r=1;t=31")]), None);
        assert_eq!(seconds(200, &[("ratelimit", "\"a\";r=0")]), None);
        assert_eq!(
            seconds(200, &[("ratelimit", "\"a\"; t=5; r=0, \"b\";r=0;t=9"), ("ratelimit", "\"c\";r=0;t=7")]),
            Some(9)
        );
        // Text inside of a name is not a parameter.
        assert_eq!(seconds(200, &[("ratelimit", r#""a;r=0;t=9, \";r=0;t=9";r=3;t=4"#)]), None);
        assert_eq!(seconds(429, &[("ratelimit", "\"a\";r=0;t=31"), ("retry-after", "40")]), Some(40));
        assert_eq!(seconds(429, &[("ratelimit", "\"a\";r=0;t=60"), ("retry-after", "30")]), Some(30));
    }

    proptest! {
        #[test]
        fn accepts_any_header_values(text in "[ -~]{0,40}", status in 200_u16..600) {
            let _ = seconds(status, &[("ratelimit", &text), ("retry-after", &text), ("date", &text)]);
        }
    }
}
