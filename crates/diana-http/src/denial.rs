//! Responses to denied requests: the status, the retry time and the reason, in the format that the client accepts.

mod grpc;
mod negotiate;
mod page;
pub(crate) mod problem;

use crate::{policy_cache, ratelimit_headers};
use bytes::Bytes;
use diana::rules::http_settings::RateLimitHeaders;
use diana::rules::response::CustomResponse;
use diana::rules::ruleset::DenyReason;
use diana::{Asked, Reason, Verdict};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use negotiate::Form;
pub(crate) use negotiate::ResponseFormat;
use std::sync::Arc;

/// A denied request.
#[derive(Debug)]
pub struct Denial {
    pub(crate) verdict: Verdict,
    pub(crate) headers: RateLimitHeaders,
    pub(crate) format: ResponseFormat,
}

/// A cached response of a denial by one limit.
pub(crate) struct CachedDenial {
    like: CacheKey,
    /// The rule's custom response.
    answer: Option<Arc<CustomResponse>>,
    headers: HeaderMap,
    body: Bytes,
}

/// The inputs of a denial's response, besides the limit itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheKey {
    status: StatusCode,
    which: RateLimitHeaders,
    remaining: u64,
    reset: Option<u64>,
    retry: Option<u64>,
}

impl CachedDenial {
    /// Returns the cached response if it has the same inputs.
    fn told(&self, like: &CacheKey, asked: &Asked<'_>) -> Option<(StatusCode, HeaderMap, Bytes)> {
        let is_same = match (&self.answer, &asked.rule.answer) {
            (Some(known), Some(answer)) => Arc::ptr_eq(known, answer),
            (known, answer) => known.is_none() && answer.is_none(),
        };
        (is_same && self.like == *like).then(|| (like.status, self.headers.clone(), self.body.clone()))
    }
}

impl Denial {
    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Returns the HTTP status; the response to a gRPC call has a gRPC status instead.
    pub fn status(&self) -> StatusCode {
        let status = self.verdict.status().and_then(|status| StatusCode::from_u16(status).ok());
        status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// Returns the response.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let (status, headers, body) = self.answer();
        let body = if self.format.has_body { body } else { Bytes::new() };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// Returns the parts of the response. A limit often denies with the same response, which is then cached.
    fn answer(&self) -> (StatusCode, HeaderMap, Bytes) {
        let only = if self.format.form == Form::Json { self.verdict.only() } else { None };
        let Some(only) = only else { return self.make() };
        let like = CacheKey {
            status: self.status(),
            which: self.headers,
            remaining: only.answer.status.remaining,
            reset: ratelimit_headers::reset(&only.answer),
            retry: self.retry_after(),
        };
        let known = policy_cache::with(&only, |policy| policy.refusal.as_ref()?.told(&like, &only));
        known.unwrap_or_else(|| {
            let (status, headers, body) = self.make();
            let made =
                CachedDenial { like, answer: only.rule.answer.clone(), headers: headers.clone(), body: body.clone() };
            policy_cache::with(&only, |policy| policy.refusal = Some(made));
            (status, headers, body)
        })
    }

    fn make(&self) -> (StatusCode, HeaderMap, Bytes) {
        let mut headers = HeaderMap::with_capacity(6);
        let retry = self.retry_after();
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, ratelimit_headers::number(seconds));
        }
        ratelimit_headers::add(&mut headers, &self.verdict, self.headers);
        let mut status = self.status();
        let reason = self.verdict.reason();
        let (content_type, body) = if let Form::Grpc(content_type) = self.format.form {
            status = StatusCode::OK;
            grpc::add(&mut headers, &self.verdict);
            (HeaderValue::from_static(content_type), Bytes::new())
        } else if let Some(own) = own_answer(reason.as_ref()) {
            own
        } else if self.format.form == Form::Html {
            (HeaderValue::from_static(page::TYPE), page::body(status, retry, &self.verdict))
        } else {
            (HeaderValue::from_static(problem::TYPE), problem::body(status, &self.verdict, reason))
        };
        headers.insert(CONTENT_TYPE, content_type);
        (status, headers, body)
    }

    /// Returns the seconds until a retry makes sense; `None` if it never does.
    fn retry_after(&self) -> Option<u64> {
        ratelimit_headers::retry_after(self.verdict.retry()?)
    }
}

/// Returns the rule's custom response, if it has one.
fn own_answer(reason: Option<&Reason<'_>>) -> Option<(HeaderValue, Bytes)> {
    match reason? {
        Reason::Limit(asked) => {
            let answer = asked.rule.answer.as_ref()?;
            Some(policy_cache::with(asked, |policy| policy.own(answer)))
        }
        // A custom response is about limits, and this request is invalid by itself.
        Reason::Rule { why: DenyReason::Cost, .. } => None,
        Reason::Rule { rule, .. } => rule.answer.as_deref().map(policy_cache::own),
        _ => None,
    }
}
