//! The fields that tell a client where it stands: the IETF's (draft-ietf-httpapi-ratelimit-headers-10), and `X-RateLimit-*`.
//!
//! `RateLimit-Policy: "each-account";q=100;w=60` says what a limit is, `RateLimit: "each-account";r=12;t=31` how much is left
//! of it and in how many seconds the limit has recovered. `Retry-After` of a denied request may be earlier: it is when enough has
//! come back for this one request.

use crate::policy_cache;
use diana::core::{Answer, Retry};
use diana::rules::RateLimitHeaders;
use diana::{Reason, Verdict};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use std::time::Duration;

pub(crate) const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
pub(crate) const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The most limits that are told; a field has to end somewhere.
const MOST: usize = 8;
/// Mostly enough for what is told about several.
const ROOM: usize = 480;

/// Tells where a client stands.
pub(crate) fn add(headers: &mut HeaderMap, verdict: &Verdict, which: RateLimitHeaders) {
    let (ietf, x) = match which {
        RateLimitHeaders::Ietf => (true, false),
        RateLimitHeaders::X => (false, true),
        RateLimitHeaders::Both => (true, true),
        RateLimitHeaders::Off => return,
    };
    if ietf {
        add_ietf(headers, verdict);
    }
    if x && let Some(Reason::Limit(asked)) = verdict.reason() {
        let status = asked.answer.status;
        headers.insert(X_LIMIT, number(status.limit));
        headers.insert(X_REMAINING, number(status.remaining));
        headers.insert(X_RESET, number(reset(&asked.answer).unwrap_or(0)));
    }
}

fn add_ietf(headers: &mut HeaderMap, verdict: &Verdict) {
    // Mostly there is one, and its policy is ready.
    let (policy, status) = match verdict.only() {
        Some(only) => policy_cache::with(&only, |policy| (policy.header.clone(), policy.status(&only.answer))),
        None => match several(verdict) {
            Some(several) => several,
            None => return,
        },
    };
    // Those behind us may have limits of their own, and tell them too.
    headers.append(RATE_LIMIT_POLICY, policy);
    headers.append(RATE_LIMIT, status);
}

/// What is told about several limits; `None` if there is none.
fn several(verdict: &Verdict) -> Option<(HeaderValue, HeaderValue)> {
    let (mut policies, mut statuses) = (Vec::new(), Vec::new());
    verdict.asked().take(MOST).for_each(|asked| {
        if policies.is_empty() {
            policies.reserve(ROOM);
            statuses.reserve(ROOM);
        } else {
            policies.extend_from_slice(b", ");
            statuses.extend_from_slice(b", ");
        }
        policy_cache::with(&asked, |policy| {
            policies.extend_from_slice(policy.header.as_bytes());
            policy.write_standing(&mut statuses, asked.answer.status.remaining, reset(&asked.answer));
        });
    });
    if policies.is_empty() {
        return None;
    }
    Some((HeaderValue::from_bytes(&policies).ok()?, HeaderValue::from_bytes(&statuses).ok()?))
}

/// In how many seconds a limit has recovered, whether it granted or denied.
pub(crate) fn reset(answer: &Answer) -> Option<u64> {
    let time = answer.status.reset;
    (time > Duration::ZERO).then(|| whole_seconds(time))
}

/// Seconds, rounded up.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

/// In how many seconds it is worth to come again; `None` if it never is.
pub(crate) fn retry_after(retry: Retry) -> Option<u64> {
    match retry {
        Retry::After(time) => Some(whole_seconds(time)),
        // Nobody knows when somebody is done; soon, mostly.
        Retry::WhenReturned => Some(1),
        Retry::Never => None,
    }
}

/// A number as a field has it, in one allocation; `HeaderValue::from` takes two.
pub(crate) fn number(number: u64) -> HeaderValue {
    let digits = HeaderValue::from_str(itoa::Buffer::new().format(number));
    digits.unwrap_or_else(|_| HeaderValue::from_static("0"))
}
