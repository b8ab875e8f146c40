//! A call that a limit on a function refused, as a response.

use crate::denial::problem;
use crate::ratelimit_headers;
use bytes::Bytes;
use diana::core::{Limiter, Quota};
use diana::limited::{Cause, Limited};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use std::fmt;
use std::sync::LazyLock;

/// Whether a mistake may be logged now: ten times, then once a second, since each call of a client could be one.
fn may_log() -> bool {
    static LIMITER: LazyLock<Option<Limiter>> =
        LazyLock::new(|| Quota::per_second(1).and_then(|quota| quota.with_burst(10)).ok().map(Limiter::new));
    LIMITER.as_ref().is_some_and(|limiter| limiter.check().is_granted())
}

/// A call that a limit on a function refused, as a response: the status, `Retry-After`, and a body of
/// `application/problem+json`. A handler returns it as its error; with the feature `axum` it is a response of axum's.
///
/// The status is the rule's where a rule refused the call, and 429 where a limit of the function's own did. If something is to
/// be set right in the program, the client hears 500 and no more, and the log says what.
///
/// ```
/// use diana::limited::Limits;
/// use diana_http::LimitedResponse;
///
/// #[diana::count_limit(limit = 1, period = "1min")]
/// async fn export() -> Result<&'static str, LimitedResponse> {
///     Ok("all of it")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// Limits::new().install();
/// assert!(export().await.is_ok());
/// let response = export().await.unwrap_err().into_response();
/// assert_eq!((response.status().as_u16(), &response.headers()["retry-after"]), (429, &"60".parse().unwrap()));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitedResponse(Limited);

impl LimitedResponse {
    /// Which function, whose call, and when to come again.
    pub fn limited(&self) -> &Limited {
        &self.0
    }

    /// The response.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let Self(limited) = self;
        let status = StatusCode::from_u16(limited.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let (violated, retry) = match limited.cause() {
            Cause::Used { retry } => (limited.function().rsplit("::").next(), Some(*retry)),
            Cause::Rule { rule, retry, .. } => (Some(*rule), Some(*retry)),
            _ => {
                if may_log() {
                    tracing::error!("{limited}");
                }
                (None, None)
            }
        };
        let mut response = Response::new(Full::new(problem::written(status, violated.as_slice(), None)));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(problem::TYPE));
        if let Some(seconds) = retry.and_then(ratelimit_headers::retry_after) {
            headers.insert(RETRY_AFTER, ratelimit_headers::number(seconds));
        }
        response
    }
}

impl From<Limited> for LimitedResponse {
    fn from(limited: Limited) -> Self {
        Self(limited)
    }
}

impl fmt::Display for LimitedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for LimitedResponse {}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for LimitedResponse {
    fn into_response(self) -> axum::response::Response {
        Self::into_response(self).map(axum::body::Body::new)
    }
}
