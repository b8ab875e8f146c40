//! Access control: the token, and without one the origin of requests that browsers send.

use super::AdminState;
use super::response::{HandlerResult, Problem};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use std::net::IpAddr;
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// Passes requests that have the token, if there is one.
pub(super) async fn token(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> HandlerResult {
    if let Some(token) = &state.token {
        let sent = bearer(request.headers()).unwrap_or_default();
        // Compares in constant time, so that the timing does not reveal how much of a guess is right.
        if !bool::from(sent.as_bytes().ct_eq(token.reveal().as_bytes())) {
            let detail = "missing or invalid token: send `Authorization: Bearer TOKEN`";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, detail));
        }
    }
    Ok(next.run(request).await)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Without a token, rejects requests that a browser sends for a page of another origin.
pub(super) fn check_origin(state: &AdminState, request: &Request) -> Result<(), Problem> {
    if state.token.is_some() {
        return Ok(());
    }
    let headers = request.headers();
    let invalid_host = || {
        let detail = "without a token, the host must be an address or `localhost`";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, detail)
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).ok_or_else(invalid_host)?;
    if !is_address(host) {
        return Err(invalid_host());
    }
    if !request.method().is_safe() {
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes);
        let is_same = |origin: &[u8]| origin.strip_prefix(b"http://") == Some(host.as_bytes());
        let fetch_site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_foreign = fetch_site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
        if is_foreign || !origin.is_none_or(is_same) {
            return Err(Problem::new(StatusCode::FORBIDDEN, "cross-origin requests are denied"));
        }
    }
    Ok(())
}

/// Returns whether a `Host` is an address or `localhost`: any other name could be rebound to this machine.
fn is_address(host: &str) -> bool {
    let Some(authority) = host.parse::<Authority>().ok().filter(|_| !host.contains('@')) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_hosts() {
        for valid in
            ["127.0.0.1:9090", "127.0.0.1", "[::1]:9090", "[::1]", "localhost:9090", "LocalHost", "10.1.2.3:80"]
        {
            assert!(is_address(valid), "{valid}");
        }
        for invalid in [
            "",
            "example.com",
            "127.0.0.1.example.com",
            "localhost.example.com:9090",
            "a@127.0.0.1",
            "127.0.0.1/x",
            "1",
        ] {
            assert!(!is_address(invalid), "{invalid}");
        }
    }
}
