//! A refusal: the status, when to come again, and why, in the form that the client asks for.

mod grpc;
mod negotiate;
mod page;
pub(crate) mod problem;

use crate::{policy_cache, ratelimit_headers};
use bytes::Bytes;
use diana::rules::{CustomResponse, DenyReason, RateLimitHeaders};
use diana::{Asked, Reason, Verdict};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use negotiate::Form;
pub(crate) use negotiate::ResponseFormat;
use std::sync::Arc;

/// A request that is refused.
#[derive(Debug)]
pub struct Denial {
    pub(crate) verdict: Verdict,
    pub(crate) headers: RateLimitHeaders,
    pub(crate) manner: ResponseFormat,
}

/// A refusal by one limit that was told before.
pub(crate) struct CachedDenial {
    like: CacheKey,
    /// What the rule answers in the user's own words.
    answer: Option<Arc<CustomResponse>>,
    headers: HeaderMap,
    body: Bytes,
}

/// What the words of a refusal depend on, but for the limit itself.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheKey {
    status: StatusCode,
    which: RateLimitHeaders,
    remaining: u64,
    reset: Option<u64>,
    retry: Option<u64>,
}

impl CachedDenial {
    /// The same again, if it is what another refusal would say.
    fn told(&self, like: &CacheKey, asked: &Asked<'_>) -> Option<(StatusCode, HeaderMap, Bytes)> {
        let is_same = match (&self.answer, &asked.rule.answer) {
            (Some(known), Some(answer)) => Arc::ptr_eq(known, answer),
            (known, answer) => known.is_none() && answer.is_none(),
        };
        (is_same && self.like == *like).then(|| (like.status, self.headers.clone(), self.body.clone()))
    }
}

impl Denial {
    /// What was decided.
    pub fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// What is answered, as HTTP has it; to a call by gRPC it is said otherwise.
    pub fn status(&self) -> StatusCode {
        let status = self.verdict.status().and_then(|status| StatusCode::from_u16(status).ok());
        status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The response.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let (status, headers, body) = self.answer();
        let body = if self.manner.has_body { body } else { Bytes::new() };
        let mut response = Response::new(Full::new(body));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// What is answered. One limit refuses again and again, mostly in the same words: then they are there already.
    fn answer(&self) -> (StatusCode, HeaderMap, Bytes) {
        let only = if self.manner.form == Form::Json { self.verdict.only() } else { None };
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
        let (content_type, body) = if let Form::Grpc(content_type) = self.manner.form {
            status = StatusCode::OK;
            grpc::add(&mut headers, &self.verdict);
            (HeaderValue::from_static(content_type), Bytes::new())
        } else if let Some(own) = own_answer(reason.as_ref()) {
            own
        } else if self.manner.form == Form::Html {
            (HeaderValue::from_static(page::TYPE), page::body(status, retry, &self.verdict))
        } else {
            (HeaderValue::from_static(problem::TYPE), problem::body(status, &self.verdict, reason))
        };
        headers.insert(CONTENT_TYPE, content_type);
        (status, headers, body)
    }

    /// In how many seconds it is worth to come again; `None` if it never is.
    fn retry_after(&self) -> Option<u64> {
        ratelimit_headers::retry_after(self.verdict.retry()?)
    }
}

/// What the rule answers in the user's own words, if it does.
fn own_answer(reason: Option<&Reason<'_>>) -> Option<(HeaderValue, Bytes)> {
    match reason? {
        Reason::Limit(asked) => {
            let answer = asked.rule.answer.as_ref()?;
            Some(policy_cache::with(asked, |policy| policy.own(answer)))
        }
        // The user's words are about limits, and this request is wrong by itself.
        Reason::Rule { why: DenyReason::Cost, .. } => None,
        Reason::Rule { rule, .. } => rule.answer.as_deref().map(policy_cache::own),
        _ => None,
    }
}
