//! Access control: tokens and their roles, and without tokens the origin of requests that browsers send.

use super::AdminState;
use super::audit::Actor;
use super::connections::ClientAddress;
use super::response::{HandlerResult, Problem, json};
use super::section::{AdminToken, Role};
use super::tokens::ValidTokens;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// The client of a request. Without tokens, every client may do everything.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The name of its token.
    name: Option<String>,
    role: Role,
    address: Option<SocketAddr>,
}

impl Caller {
    /// Returns the client, for the audit log.
    pub(super) fn actor(&self) -> Actor<'_> {
        Actor { source: "admin", name: self.name.as_deref(), client: self.address }
    }
}

#[derive(Debug, Serialize)]
struct WhoAmI<'a> {
    /// `null` without tokens.
    name: Option<&'a str>,
    role: &'static str,
}

pub(super) async fn who_am_i(Extension(caller): Extension<Caller>) -> HandlerResult {
    json(WhoAmI { name: caller.name.as_deref(), role: caller.role.name() })
}

/// Passes requests that have a token, if there are any.
pub(super) async fn read(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> HandlerResult {
    pass(&state, Role::Read, request, next).await
}

/// Passes requests that have a token with the role `operate`, if there are any tokens.
pub(super) async fn operate(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> HandlerResult {
    pass(&state, Role::Operate, request, next).await
}

async fn pass(state: &AdminState, needed: Role, mut request: Request, next: Next) -> HandlerResult {
    let address = request.extensions().get::<ClientAddress>().map(|client| client.0);
    let valid = request.extensions().get::<ValidTokens>().cloned().unwrap_or_else(|| state.tokens.valid());
    let caller = if valid.is_open {
        Caller { name: None, role: Role::Operate, address }
    } else {
        let sent = bearer(request.headers()).unwrap_or_default();
        let token = find(&valid.tokens, sent).ok_or_else(|| {
            let detail = "missing or invalid token: send `Authorization: Bearer TOKEN`";
            Problem::new(StatusCode::UNAUTHORIZED, detail)
        })?;
        Caller { name: Some(token.name.clone()), role: token.role, address }
    };
    if caller.role < needed {
        let (name, role, needed) = (caller.name.unwrap_or_default(), caller.role.name(), needed.name());
        let (client, path) = (address.map(|client| client.to_string()), request.uri().path());
        tracing::warn!(who = name, client, path, "admin: denied, the role `{needed}` is needed");
        let detail = format!("this needs the role `{needed}`; the token of `{name}` has the role `{role}`");
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Returns the token that was sent. Compares it with all of them, each in constant time, so that the time reveals neither
/// how much of a guess is right nor which token it resembles.
fn find<'a>(tokens: &'a [AdminToken], sent: &str) -> Option<&'a AdminToken> {
    let mut matching = 0_u64;
    for (number, token) in (1..).zip(tokens) {
        matching.conditional_assign(&number, sent.as_bytes().ct_eq(token.token.reveal().as_bytes()));
    }
    usize::try_from(matching).ok()?.checked_sub(1).and_then(|index| tokens.get(index))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Rejects requests that a browser sends for a page of another origin, unless tokens are required.
pub(super) fn check_origin(valid: &ValidTokens, request: &Request) -> Result<(), Problem> {
    if !valid.is_open {
        return Ok(());
    }
    let headers = request.headers();
    let invalid_host = || {
        let detail = "without a token, a request needs one host, and it must be an address or `localhost`";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, detail)
    };
    let host = only_host(headers).ok_or_else(invalid_host)?;
    // An absolute target has a name too; a browser's names are equal.
    let is_target = request.uri().authority().is_none_or(|authority| authority.as_str() == host);
    if !is_address(host) || !is_target {
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

/// Returns the `Host`, if there is exactly one.
fn only_host(headers: &HeaderMap) -> Option<&str> {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        _ => None,
    }
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
    use diana_rules::Secret;

    #[test]
    fn a_token_is_found_among_several() {
        let token = |name: &str, secret: &str| AdminToken::new(name, Secret::new(secret), Role::Read);
        let tokens = [token("a", "one"), token("b", "three"), token("c", "three more")];
        let name = |sent: &str| find(&tokens, sent).map(|token| token.name.as_str());
        assert_eq!(["one", "three", "three more"].map(name), [Some("a"), Some("b"), Some("c")]);
        assert_eq!(["", "thre", "three ", "four"].map(name), [None; 4]);
    }

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
