//! Responses to denied requests: the status, the retry time and the reason, in the format that the client accepts.

mod grpc;
mod negotiate;
mod page;

use crate::{limit_response_cache, problem, ratelimit_headers};
use bytes::Bytes;
use diana::rules::http_settings::RateLimitHeaders;
use diana::rules::response::CustomResponse;
use diana::rules::ruleset::DenyReason;
use diana::{CheckedLimit, Reason, Verdict};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use negotiate::BodyFormat;
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
    key: CacheKey,
    /// The rule's custom response.
    custom: Option<Arc<CustomResponse>>,
    headers: HeaderMap,
    body: Bytes,
}

/// The inputs of a denial's response, besides the limit itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheKey {
    status: StatusCode,
    headers: RateLimitHeaders,
    remaining: u64,
    reset: Option<u64>,
    retry: Option<u64>,
}

impl CachedDenial {
    /// Returns the cached response if it has the same inputs.
    fn get(&self, key: &CacheKey, asked: &CheckedLimit<'_>) -> Option<(StatusCode, HeaderMap, Bytes)> {
        let is_same = match (&self.custom, &asked.rule.answer) {
            (Some(cached), Some(custom)) => Arc::ptr_eq(cached, custom),
            (cached, custom) => cached.is_none() && custom.is_none(),
        };
        (is_same && self.key == *key).then(|| (key.status, self.headers.clone(), self.body.clone()))
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
        let (status, headers, body) = self.parts();
        let body = if self.format.has_body { body } else { Bytes::new() };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// Returns the parts of the response. A limit often denies with the same response, which is then cached.
    fn parts(&self) -> (StatusCode, HeaderMap, Bytes) {
        let only = if self.format.body_format == BodyFormat::Json { self.verdict.only_limit() } else { None };
        let Some(only) = only else { return self.build() };
        let key = CacheKey {
            status: self.status(),
            headers: self.headers,
            remaining: only.answer.status.remaining,
            reset: ratelimit_headers::reset(&only.answer),
            retry: self.retry_after(),
        };
        let cached = limit_response_cache::with(&only, |policy| policy.denial.as_ref()?.get(&key, &only));
        cached.unwrap_or_else(|| {
            let (status, headers, body) = self.build();
            let denial =
                CachedDenial { key, custom: only.rule.answer.clone(), headers: headers.clone(), body: body.clone() };
            limit_response_cache::with(&only, |policy| policy.denial = Some(denial));
            (status, headers, body)
        })
    }

    fn build(&self) -> (StatusCode, HeaderMap, Bytes) {
        let mut headers = HeaderMap::with_capacity(6);
        let retry = self.retry_after();
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, ratelimit_headers::number(seconds));
        }
        ratelimit_headers::add(&mut headers, &self.verdict, self.headers);
        let mut status = self.status();
        let reason = self.verdict.reason();
        let (content_type, body) = if let BodyFormat::Grpc(content_type) = self.format.body_format {
            status = StatusCode::OK;
            grpc::add(&mut headers, &self.verdict);
            (HeaderValue::from_static(content_type), Bytes::new())
        } else if let Some(custom) = custom_response(reason.as_ref()) {
            custom
        } else if self.format.body_format == BodyFormat::Html {
            (HeaderValue::from_static(page::TYPE), page::body(status, retry, &self.verdict))
        } else {
            (problem::TYPE, problem_body(status, &self.verdict, reason))
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
fn custom_response(reason: Option<&Reason<'_>>) -> Option<(HeaderValue, Bytes)> {
    match reason? {
        Reason::Limit(asked) => {
            let custom = asked.rule.answer.as_ref()?;
            Some(limit_response_cache::with(asked, |policy| policy.custom(custom)))
        }
        // A custom response is about limits, and this request is invalid by itself.
        Reason::Rule { why: DenyReason::Cost, .. } => None,
        Reason::Rule { rule, .. } => rule.answer.as_deref().map(limit_response_cache::encode_custom),
        _ => None,
    }
}

/// Returns the problem body of a denial.
fn problem_body(status: StatusCode, verdict: &Verdict, reason: Option<Reason<'_>>) -> Bytes {
    let denied = || verdict.checked_limits().filter(|asked| !asked.answer.is_granted());
    match reason {
        Some(Reason::Limit(asked)) if verdict.only_limit().is_some() || denied().count() == 1 => {
            let build = || problem::body(status, &[asked.limit.name()], None);
            limit_response_cache::with(&asked, |policy| policy.problem(status, build))
        }
        Some(Reason::Limit(_)) => {
            let names = denied().map(|asked| asked.limit.name()).collect::<Vec<_>>();
            problem::body(status, &names, None)
        }
        Some(Reason::Rule { rule, why }) => {
            let detail = match why {
                DenyReason::Listed => "the request is on a deny list".to_owned(),
                DenyReason::Missing => format!("the request has no {}", rule.by),
                DenyReason::Cost => "the cost of the request cannot be computed".to_owned(),
                DenyReason::Overloaded(_) => return problem::body(status, &[&rule.name], None),
                _ => return problem::body(status, &[], None),
            };
            problem::body(status, &[], Some(&detail))
        }
        _ => problem::body(status, &[], None),
    }
}
