//! Caches the constant parts of responses about a limit.
//!
//! The cache is per thread, so that reference counts are not contended between threads.

mod cached_denial;

use crate::header_values;
use bytes::Bytes;
pub(crate) use cached_denial::{CacheKey, CachedDenial};
use diana::algorithm::Restores;
use diana::rules::response::CustomResponse;
use diana::store::{Limit, LimitId, LimitIdHasher};
use diana::{Answer, CheckedLimit, Quota};
use http::{HeaderValue, StatusCode};
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::Duration;

/// The constant parts of responses about a limit.
pub(crate) struct CachedLimitResponse {
    version: u64,
    capacity: u64,
    /// The start of its `RateLimit` item: its name, up to the remaining permits.
    prefix: Box<str>,
    /// The limit's last `RateLimit` value. Consecutive denials mostly have the same.
    last: Option<(u64, Option<u64>, HeaderValue)>,
    /// The limit's `RateLimit-Policy` item.
    pub(crate) header: HeaderValue,
    /// The last response of a denial by this limit alone.
    pub(crate) denial: Option<CachedDenial>,
    /// The body of a denial by this limit alone, and its status.
    problem: Option<(StatusCode, Bytes)>,
    /// The rule's custom response, and its encoded form.
    custom: Option<(Arc<CustomResponse>, (HeaderValue, Bytes))>,
}

/// The maximum number of entries per thread; then the cache is cleared.
const MAX_ENTRIES: usize = 4_096;

thread_local! {
    static CACHE: RefCell<HashMap<LimitId, CachedLimitResponse, BuildHasherDefault<LimitIdHasher>>> = RefCell::default();
}

/// Calls `act` with the cache entry of a limit.
pub(crate) fn with<T>(asked: &CheckedLimit<'_>, act: impl FnOnce(&mut CachedLimitResponse) -> T) -> T {
    let (limit, capacity) = (asked.limit, asked.answer.status().limit);
    CACHE.with_borrow_mut(|cache| {
        if let Some(policy) = cache.get_mut(&limit.id())
            && policy.is_of(limit, capacity)
        {
            return act(policy);
        }
        if cache.len() >= MAX_ENTRIES {
            cache.clear();
        }
        let mut policy = CachedLimitResponse::new(limit, capacity);
        let result = act(&mut policy);
        cache.insert(limit.id(), policy);
        result
    })
}

impl CachedLimitResponse {
    fn new(limit: &Limit, capacity: u64) -> Self {
        let name = string(limit.name());
        let lowest = |windows: &[Quota]| windows.iter().map(Quota::permits).min();
        let text = match limit.properties().restores {
            Restores::InWindows(all @ [_, _, ..]) if lowest(all) == Some(capacity) => windows(limit.name(), all),
            restores => {
                let unit = if limit.properties().is_released() { ";qu=\"concurrent-requests\"" } else { "" };
                let window = window(limit, restores).map(|window| format!(";w={window}")).unwrap_or_default();
                format!("{name};q={capacity}{unit}{window}")
            }
        };
        let header = HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        Self {
            version: limit.version(),
            capacity,
            prefix: format!("{name};r=").into(),
            last: None,
            denial: None,
            header,
            problem: None,
            custom: None,
        }
    }

    fn is_of(&self, limit: &Limit, capacity: u64) -> bool {
        self.version == limit.version() && self.capacity == capacity
    }

    /// Returns `RateLimit` for this limit alone.
    pub(crate) fn status(&mut self, answer: &Answer) -> HeaderValue {
        let (remaining, reset) = (answer.status().remaining, header_values::reset(answer));
        if let Some((last_remaining, last_reset, value)) = &self.last
            && (*last_remaining, *last_reset) == (remaining, reset)
        {
            return value.clone();
        }
        let mut text = Vec::with_capacity(96);
        self.write_status(&mut text, remaining, reset);
        let value = HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static(""));
        self.last = Some((remaining, reset, value.clone()));
        value
    }

    /// Writes the remaining permits and the seconds until the reset.
    pub(crate) fn write_status(&self, text: &mut Vec<u8>, remaining: u64, reset: Option<u64>) {
        text.extend_from_slice(self.prefix.as_bytes());
        text.extend_from_slice(itoa::Buffer::new().format(remaining).as_bytes());
        if let Some(reset) = reset {
            text.extend_from_slice(b";t=");
            text.extend_from_slice(itoa::Buffer::new().format(reset).as_bytes());
        }
    }

    /// Returns the body of a denial by this limit alone.
    pub(crate) fn problem(&mut self, status: StatusCode, build: impl FnOnce() -> Bytes) -> Bytes {
        match &self.problem {
            Some((cached, body)) if *cached == status => body.clone(),
            _ => {
                let body = build();
                self.problem = Some((status, body.clone()));
                body
            }
        }
    }

    /// Returns the rule's custom response.
    pub(crate) fn custom(&mut self, custom: &Arc<CustomResponse>) -> (HeaderValue, Bytes) {
        match &self.custom {
            Some((cached, encoded)) if Arc::ptr_eq(cached, custom) => encoded.clone(),
            _ => {
                let encoded = encode_custom(custom);
                self.custom = Some((Arc::clone(custom), encoded.clone()));
                encoded
            }
        }
    }
}

/// Encodes a custom response.
pub(crate) fn encode_custom(custom: &CustomResponse) -> (HeaderValue, Bytes) {
    let content_type = HeaderValue::from_str(&custom.content_type);
    let content_type = content_type.unwrap_or_else(|_| HeaderValue::from_static("text/plain; charset=utf-8"));
    (content_type, Bytes::copy_from_slice(custom.text.as_bytes()))
}

/// Returns the seconds in which the capacity is granted at most; `None` if time restores no permits.
///
/// It is that of the rule. While Redis is unreachable, the reported capacity is the share of this instance: the rate is
/// divided too, so the share has the same window.
fn window(limit: &Limit, restores: Restores<'_>) -> Option<u64> {
    match restores {
        Restores::Continuously(quota) | Restores::InSteps(quota) => {
            let nanos = quota.period().as_nanos().saturating_mul(u128::from(limit.capacity()));
            Some(seconds(nanos / u128::from(quota.permits())))
        }
        // Within the precision of `f64`, and never below 1.
        Restores::AtRate(rate) => {
            Some(seconds(Duration::try_from_secs_f64(limit.capacity() as f64 / rate).ok()?.as_nanos()))
        }
        // The time of the window whose limit is reported.
        Restores::InWindows(windows) => {
            windows.iter().min_by_key(|quota| quota.permits()).map(|quota| seconds(quota.period().as_nanos()))
        }
        Restores::AfterInterval(interval) => Some(seconds(interval.as_nanos())),
        _ => None,
    }
}

/// Returns the policies of a limit with several windows, named as if they were several limits.
fn windows(name: &str, windows: &[Quota]) -> String {
    let policies = windows.iter().zip(1..).map(|(quota, number)| {
        let name = if number == 1 { string(name) } else { string(&format!("{name}#{number}")) };
        format!("{name};q={};w={}", quota.permits(), seconds(quota.period().as_nanos()))
    });
    policies.collect::<Vec<_>>().join(", ")
}

/// Returns whole seconds, rounded up, and at least one.
fn seconds(nanos: u128) -> u64 {
    u64::try_from(nanos.div_ceil(1_000_000_000)).unwrap_or(u64::MAX).max(1)
}

/// Formats a string of a structured field (RFC 9651), which only allows printable ASCII.
fn string(text: &str) -> String {
    let mut string = String::with_capacity(text.len() + 2);
    string.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => string.extend(['\\', char::from(byte)]),
            b' '..=b'~' => string.push(char::from(byte)),
            _ => string.push_str(&format!("%{byte:02X}")),
        }
    }
    string.push('"');
    string
}
