//! Responses and error responses.

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use diana_http::problem_response;
use serde::Serialize;

/// An error response: a problem as in RFC 9457.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

pub(super) type HandlerResult = Result<Response, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// Creates the response to an invalid request.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = problem_response(self.status, &self.detail).map(Body::new);
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"diana\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

pub(super) fn json(value: impl Serialize) -> HandlerResult {
    Ok(Json(value).into_response())
}

/// Returns whether the client prefers plain text to JSON.
pub(super) fn wants_text(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').next().is_some_and(|first| first.trim().starts_with("text/plain"))
}

const PATHS: &str = "GET / /healthz /readyz /metrics /status /history /rules /rule /changes /audit /whoami /explain /top \
                     /what-if /peek, POST /reset /refund /charge /reload";

pub(super) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("unknown path, expected one of {PATHS}"))
}

pub(super) async fn method_not_allowed(method: Method) -> Problem {
    let detail = format!("method {method} is not supported for this path, expected one of {PATHS}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
