//! Responses and error responses.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// An error response: a problem as in RFC 9457.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    title: &'static str,
    status: u16,
    detail: String,
}

pub(super) type Answer = Result<Response, Problem>;

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { title: status.canonical_reason().unwrap_or_default(), status: status.as_u16(), detail: detail.into() }
    }

    /// The request is invalid.
    pub(super) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let problem = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, problem);
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer realm=\"diana\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        response
    }
}

pub(super) fn json(value: impl Serialize) -> Answer {
    Ok(Json(value).into_response())
}

/// Returns whether the client prefers plain text to JSON.
pub(super) fn wants_text(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    accept.split(',').next().is_some_and(|first| first.trim().starts_with("text/plain"))
}

const PATHS: &str = "GET / /healthz /readyz /metrics /status /rules /explain /peek, POST /reset /refund /charge";

pub(super) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("there is nothing here; there are: {PATHS}"))
}

pub(super) async fn wrong_method(method: Method) -> Problem {
    let detail = format!("{method} is not for this; there are: {PATHS}");
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}
