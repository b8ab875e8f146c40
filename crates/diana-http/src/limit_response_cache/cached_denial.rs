//! The last response of a denial by one limit, and for which inputs it is valid.

use bytes::Bytes;
use diana::CheckedLimit;
use diana::rules::http_settings::RateLimitHeaders;
use diana::rules::response::CustomResponse;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// A cached response of a denial by one limit.
pub(crate) struct CachedDenial {
    pub(crate) key: CacheKey,
    /// The rule's custom response.
    custom: Option<Arc<CustomResponse>>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Status and headers as HTTP/1 text, written when they are first needed.
    http1: Vec<u8>,
}

/// The inputs of a denial's response, besides the limit itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheKey {
    pub(crate) status: StatusCode,
    pub(crate) headers: RateLimitHeaders,
    pub(crate) remaining: u64,
    pub(crate) reset: Option<u64>,
    pub(crate) retry: Option<u64>,
}

impl CachedDenial {
    pub(crate) fn new(key: CacheKey, custom: Option<Arc<CustomResponse>>, headers: HeaderMap, body: Bytes) -> Self {
        Self { key, custom, headers, body, http1: Vec::new() }
    }

    /// Returns `true` if the cached response has the same inputs.
    pub(crate) fn is_for(&self, key: &CacheKey, asked: &CheckedLimit<'_>) -> bool {
        let is_same = match (&self.custom, &asked.rule.answer) {
            (Some(cached), Some(custom)) => Arc::ptr_eq(cached, custom),
            (cached, custom) => cached.is_none() && custom.is_none(),
        };
        is_same && self.key == *key
    }

    /// Returns status and headers as HTTP/1 text.
    pub(crate) fn http1(&mut self) -> &[u8] {
        if self.http1.is_empty() {
            let status = self.key.status;
            let reason = status.canonical_reason().unwrap_or_default();
            self.http1 = format!(" {} {reason}\r\n", status.as_str()).into_bytes();
            for (name, value) in &self.headers {
                for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    self.http1.extend_from_slice(part);
                }
            }
            self.http1.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        &self.http1
    }
}
