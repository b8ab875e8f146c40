//! Applies to every request and response: the origin check, the timeout, and the headers for browsers and caches.

use super::AdminState;
use super::auth::check_origin;
use super::response::Problem;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use std::time::Duration;

/// The maximum duration of a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The page's content security policy: only resources of this origin, and no framing.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Applies to every request: the origin check, the timeout and the common headers.
pub(super) async fn guard(State(state): State<Arc<AdminState>>, mut request: Request, next: Next) -> Response {
    // The same tokens for all checks of a request: they may be replaced meanwhile.
    let valid = state.tokens.valid();
    let checked = check_origin(&valid, &request);
    request.extensions_mut().insert(valid);
    let mut response = match checked {
        Err(problem) => problem.into_response(),
        Ok(()) => match tokio::time::timeout(TIMEOUT, next.run(request)).await {
            Ok(response) => response,
            Err(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the request timed out").into_response(),
        },
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
