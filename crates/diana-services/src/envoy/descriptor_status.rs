//! The status of a descriptor: which limit it is closest to, and what is left of it.

use crate::envoy::proto::ratelimit::rate_limit_response::rate_limit::Unit;
use crate::envoy::proto::ratelimit::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use diana::store::Limit;
use diana::{Answer, Verdict};
use diana_rules::rule::Mode;
use http::HeaderName;
use std::time::Duration;

use crate::envoy::proto::envoy::config::core::v3::HeaderValue;

/// Returns the status of one of several descriptors that were decided together.
pub(super) fn of_verdict(verdict: &Verdict, descriptor: usize) -> DescriptorStatus {
    let is_enforced = |rule: u32| verdict.rules().rule(rule).is_some_and(|rule| rule.rule().mode == Mode::Enforced);
    let is_listed = verdict.matches().denied_of(descriptor).iter().any(|denied| is_enforced(denied.rule));
    // A denied limit comes first, then the one with the fewest permits left.
    let limits = verdict.limits_of(descriptor);
    let closest = limits.min_by_key(|checked| (checked.answer.is_granted(), checked.answer.status().remaining));
    match closest {
        _ if is_listed => over(),
        Some(checked) => of_answer(checked.limit, &checked.answer),
        None => ok(),
    }
}

/// Returns the status of a descriptor that no rule matches.
pub(super) fn ok() -> DescriptorStatus {
    DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() }
}

/// Returns the status of a descriptor that is denied whatever was counted.
pub(super) fn over() -> DescriptorStatus {
    DescriptorStatus { code: Code::OverLimit.into(), ..DescriptorStatus::default() }
}

/// Returns the status of a limit.
pub(super) fn of_answer(limit: &Limit, answer: &Answer) -> DescriptorStatus {
    let code = if answer.is_granted() { Code::Ok } else { Code::OverLimit };
    let status = answer.status();
    let (requests, unit) = match limit.quota() {
        Some(quota) => match unit_of(quota.period()) {
            Unit::Unknown => (status.limit, Unit::Unknown),
            unit => (quota.permits(), unit),
        },
        None => (status.limit, Unit::Unknown),
    };
    DescriptorStatus {
        code: code.into(),
        current_limit: Some(RateLimit {
            requests_per_unit: saturated(requests),
            unit: unit.into(),
            name: limit.name().to_owned(),
        }),
        limit_remaining: saturated(status.remaining),
        duration_until_reset: prost_types::Duration::try_from(status.reset).ok(),
    }
}

/// Returns Envoy's unit for a period; `Unknown` if it has none. A month has 30 days, a year 365.
fn unit_of(period: Duration) -> Unit {
    const DAY: u64 = 24 * 3600;
    match (period.as_secs(), period.subsec_nanos()) {
        (1, 0) => Unit::Second,
        (60, 0) => Unit::Minute,
        (3600, 0) => Unit::Hour,
        (DAY, 0) => Unit::Day,
        (seconds, 0) if seconds == 7 * DAY => Unit::Week,
        (seconds, 0) if seconds == 30 * DAY => Unit::Month,
        (seconds, 0) if seconds == 365 * DAY => Unit::Year,
        _ => Unit::Unknown,
    }
}

fn saturated(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns headers as Envoy's messages have them.
pub(super) fn headers<'a>(
    headers: impl IntoIterator<Item = (&'a HeaderName, &'a http::HeaderValue)>,
) -> Vec<HeaderValue> {
    let values = headers.into_iter().map(|(name, value)| HeaderValue {
        key: name.as_str().to_owned(),
        value: String::from_utf8_lossy(value.as_bytes()).into_owned(),
        raw_value: Vec::new(),
    });
    values.collect()
}
