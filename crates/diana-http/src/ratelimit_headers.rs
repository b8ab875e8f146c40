//! Rate limit response headers: the IETF's (draft-ietf-httpapi-ratelimit-headers-10), and `X-RateLimit-*`.
//!
//! `RateLimit-Policy: "each-account";q=100;w=60` describes a limit, `RateLimit: "each-account";r=12;t=31` its remaining
//! permits and the seconds until it is reset. `Retry-After` of a denied request may be earlier: it is when there are
//! enough permits for this one request.

use crate::header_values::{number, reset, retry_after};
use crate::limit_response_cache;
use diana::rules::http_settings::RateLimitHeaders;
use diana::{Reason, Verdict};
use http::header::{HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The maximum number of limits in a header.
const MAX_LIMITS: usize = 8;
/// The initial capacity of a header with several limits, which is usually enough.
const CAPACITY: usize = 480;

/// Returns the headers of a response about a verdict: the rate limit headers, and `Retry-After` if it was denied.
pub fn response_headers(verdict: &Verdict, which: RateLimitHeaders) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(3);
    if let Some(seconds) = verdict.retry().and_then(retry_after) {
        headers.push((RETRY_AFTER, number(seconds)));
    }
    if which.has_ietf()
        && let Some((policy, status)) = ietf(verdict)
    {
        headers.extend([(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, status)]);
    }
    if which.has_x()
        && let Some(fields) = x_fields(verdict)
    {
        headers.extend(fields);
    }
    headers
}

/// Adds the rate limit headers.
pub(crate) fn add(headers: &mut HeaderMap, verdict: &Verdict, which: RateLimitHeaders) {
    if which.has_ietf()
        && let Some((policy, status)) = ietf(verdict)
    {
        // The upstream may have its own limits, and report them too.
        headers.append(RATE_LIMIT_POLICY, policy);
        headers.append(RATE_LIMIT, status);
    }
    if which.has_x()
        && let Some(fields) = x_fields(verdict)
    {
        headers.extend(fields);
    }
}

/// Returns `X-RateLimit-*`.
fn x_fields(verdict: &Verdict) -> Option<[(HeaderName, HeaderValue); 3]> {
    let Some(Reason::Limit(asked)) = verdict.reason() else { return None };
    let status = asked.answer.status();
    let reset = reset(&asked.answer).unwrap_or(0);
    Some([(X_LIMIT, number(status.limit)), (X_REMAINING, number(status.remaining)), (X_RESET, number(reset))])
}

/// Returns `RateLimit-Policy` and `RateLimit`.
#[inline]
fn ietf(verdict: &Verdict) -> Option<(HeaderValue, HeaderValue)> {
    // Usually there is one limit, and its policy is cached.
    match verdict.only_limit() {
        Some(limit) => {
            Some(limit_response_cache::with(&limit, |policy| (policy.header.clone(), policy.status(&limit.answer))))
        }
        None => join_limits(verdict),
    }
}

/// Returns the headers for several limits; `None` if there are none.
fn join_limits(verdict: &Verdict) -> Option<(HeaderValue, HeaderValue)> {
    let (mut policies, mut statuses) = (Vec::new(), Vec::new());
    verdict.checked_limits().take(MAX_LIMITS).for_each(|asked| {
        if policies.is_empty() {
            policies.reserve(CAPACITY);
            statuses.reserve(CAPACITY);
        } else {
            policies.extend_from_slice(b", ");
            statuses.extend_from_slice(b", ");
        }
        limit_response_cache::with(&asked, |policy| {
            policies.extend_from_slice(policy.header.as_bytes());
            policy.write_status(&mut statuses, asked.answer.status().remaining, reset(&asked.answer));
        });
    });
    if policies.is_empty() {
        return None;
    }
    Some((HeaderValue::from_bytes(&policies).ok()?, HeaderValue::from_bytes(&statuses).ok()?))
}
