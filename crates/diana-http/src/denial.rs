//! Responses to denied requests: the status, the retry time and the reason, in the format that the client accepts.

mod grpc;
mod negotiate;
mod page;

use crate::header_values::{self, number, reset};
use crate::limit_response_cache::{self, CacheKey, CachedDenial};
use crate::{problem, ratelimit_headers};
use bytes::Bytes;
use diana::rules::http_settings::RateLimitHeaders;
use diana::ruleset::DenyReason;
use diana::{Reason, Verdict};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use negotiate::BodyFormat;
pub(crate) use negotiate::ResponseFormat;

/// A denied request.
#[derive(Debug)]
pub struct Denial {
    pub(crate) denial: diana::Denial,
    pub(crate) headers: RateLimitHeaders,
    pub(crate) format: ResponseFormat,
}

impl Denial {
    /// Returns the verdict.
    pub fn verdict(&self) -> &Verdict {
        &self.denial
    }

    /// Returns the HTTP status; the response to a gRPC call has a gRPC status instead.
    pub fn status(&self) -> StatusCode {
        let status = self.denial.status().and_then(|status| StatusCode::from_u16(status).ok());
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

    /// Writes the response as HTTP/1 text, from the status on: the version comes before. `end_head` adds the last headers
    /// and the empty line. Returns the status and the length of the body; `None` if the response is not one that is
    /// cached, and nothing was written.
    ///
    /// It writes what [`into_response`](Self::into_response) returns, without the cost of a header map.
    pub fn write_http1(&self, text: &mut Vec<u8>, end_head: impl FnOnce(&mut Vec<u8>)) -> Option<(StatusCode, usize)> {
        if !self.format.has_body {
            return None;
        }
        self.with_cached(|denial| {
            text.extend_from_slice(denial.http1());
            end_head(text);
            text.extend_from_slice(&denial.body);
            (denial.key.status, denial.body.len())
        })
    }

    /// Returns the parts of the response. A limit often denies with the same response, which is then cached.
    fn parts(&self) -> (StatusCode, HeaderMap, Bytes) {
        let cached = self.with_cached(|denial| (denial.key.status, denial.headers.clone(), denial.body.clone()));
        cached.unwrap_or_else(|| self.build())
    }

    /// Calls `act` with the cached response, which is built before if it has changed. Only responses about one limit are
    /// cached.
    #[inline]
    fn with_cached<T>(&self, act: impl FnOnce(&mut CachedDenial) -> T) -> Option<T> {
        if self.format.body_format != BodyFormat::Json {
            return None;
        }
        let only = self.denial.only_limit()?;
        let key = CacheKey {
            status: self.status(),
            headers: self.headers,
            remaining: only.answer.status().remaining,
            reset: reset(&only.answer),
            retry: self.retry_after(),
        };
        let mut act = Some(act);
        let cached = limit_response_cache::with(&only, |policy| {
            let denial = policy.denial.as_mut().filter(|denial| denial.is_for(&key, &only))?;
            act.take().map(|act| act(denial))
        });
        if cached.is_some() {
            return cached;
        }
        let (_, headers, body) = self.build();
        let custom = only.rule.answer.clone();
        let mut denial = CachedDenial::new(key, custom, headers, body);
        let result = act.map(|act| act(&mut denial));
        limit_response_cache::with(&only, |policy| policy.denial = Some(denial));
        result
    }

    fn build(&self) -> (StatusCode, HeaderMap, Bytes) {
        let mut headers = HeaderMap::with_capacity(6);
        let retry = self.retry_after();
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, number(seconds));
        }
        ratelimit_headers::add(&mut headers, &self.denial, self.headers);
        let mut status = self.status();
        let reason = self.denial.reason();
        let (content_type, body) = if let BodyFormat::Grpc(content_type) = self.format.body_format {
            status = StatusCode::OK;
            grpc::add(&mut headers, &self.denial);
            (HeaderValue::from_static(content_type), Bytes::new())
        } else if let Some(custom) = custom_response(reason.as_ref()) {
            custom
        } else if self.format.body_format == BodyFormat::Html {
            (HeaderValue::from_static(page::TYPE), page::body(status, retry, &self.denial))
        } else {
            (problem::TYPE, problem_body(status, &self.denial, reason))
        };
        headers.insert(CONTENT_TYPE, content_type);
        (status, headers, body)
    }

    /// Returns the seconds until a retry makes sense; `None` if it never does.
    fn retry_after(&self) -> Option<u64> {
        header_values::retry_after(self.denial.retry()?)
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
