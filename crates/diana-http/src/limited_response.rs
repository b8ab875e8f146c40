//! The response to a call that a limit on a function denied.

use crate::{header_values, problem};
use bytes::Bytes;
use diana::limited::{Cause, Limited};
use diana::{Limiter, Quota};
use http::header::RETRY_AFTER;
use http::{Response, StatusCode};
use http_body_util::Full;
use std::sync::LazyLock;

/// Returns `true` if a mistake may be logged now: ten times, then once per second, since each call of a client could
/// cause one.
fn may_log() -> bool {
    static LIMITER: LazyLock<Option<Limiter>> =
        LazyLock::new(|| Quota::per_second(1).and_then(|quota| quota.with_burst(10)).ok().map(Limiter::new));
    LIMITER.as_ref().is_some_and(|limiter| limiter.check().is_granted())
}

/// The response to a call that a limit on a function denied: the status, `Retry-After`, and an
/// `application/problem+json` body. A handler returns it as its error; with the feature `axum` it implements axum's
/// `IntoResponse`.
///
/// The status is the rule's if a rule denied the call, and 429 if the function's own limit did. For a mistake in the
/// program, the client receives a plain 500, and the log has the details.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(transparent)]
pub struct LimitedResponse(#[from] Limited);

impl LimitedResponse {
    /// Returns the function, the key and the retry time.
    pub fn limited(&self) -> &Limited {
        &self.0
    }

    /// Returns the response.
    pub fn into_response(self) -> Response<Full<Bytes>> {
        let Self(limited) = self;
        let status = StatusCode::from_u16(limited.status()).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
        let (violated, retry) = match limited.cause() {
            Cause::Exhausted { retry } => (limited.function().rsplit("::").next(), Some(*retry)),
            Cause::Rule { rule, retry, .. } => (Some(*rule), Some(*retry)),
            _ => {
                if may_log() {
                    tracing::error!("{limited}");
                }
                (None, None)
            }
        };
        let mut response = problem::response(status, problem::body(status, violated.as_slice(), None));
        if let Some(seconds) = retry.and_then(header_values::retry_after) {
            response.headers_mut().insert(RETRY_AFTER, header_values::number(seconds));
        }
        response
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for LimitedResponse {
    fn into_response(self) -> axum::response::Response {
        Self::into_response(self).map(axum::body::Body::new)
    }
}
