//! The service that other HTTP gateways ask: nginx's `auth_request`, Traefik's `forwardAuth`, Caddy's `forward_auth`.
//!
//! `GET /check` is answered with 204 if the request that it describes is allowed, else as the gateway would answer that
//! request. `/check/403` answers with 403 instead, since nginx accepts only 401 and 403.
//!
//! # What always holds (tests/it/services/forward_auth.rs of diana-server)
//! - The request is described by `X-Forwarded-Method`, `-Uri`, `-Host`, `-Proto` and `-For` only; its other headers are those
//!   of the check. `X-Original-URI`, `X-Real-IP` and `Forwarded`, which proxies pass on from clients, are not used.
//! - The query of the check itself is ignored: Caddy adds that of the client.
//! - The client is the last address in `X-Forwarded-For` that is not a trusted proxy. Only proxies may reach the service.
//! - Only an allowed request is answered with 2xx, which is all that these proxies look at.

use super::drain::{self, ConnReuse};
use super::head::{self, Rejected};
use super::{RequestBody, RequestTracker, ResponseFuture, rejected, respond};
use crate::connection::Connection;
use crate::response::{ResponseBody, local_response};
use diana::{Denial, Permit, Verdict};
use diana_http::{Filter, HttpAttributes, RequestScheme};
use diana_metrics::Outcome;
use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri, Version};
use std::net::IpAddr;
use std::sync::Arc;

const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PATH: &str = "/check";
/// The name of this service in the log of denials.
const SERVICE: &str = "http";

impl Connection {
    /// Answers a check.
    pub(super) fn check(self: &Arc<Self>, mut head: Parts, body: RequestBody) -> ResponseFuture {
        let worker = &self.worker;
        let reuse = drain::drain(&head, body);
        let client = diana_http::forwarded_client(&head.headers, &worker.gateway.http.trusted_proxies);
        // Without the header, all requests of the proxy count as one client, rather than as none.
        let client = client.unwrap_or(self.conn_info.peer);
        let (status, described) = match fixed_status(&head.uri) {
            Ok(status) => (status, describe(&mut head)),
            Err(unknown) => (None, Err(unknown)),
        };
        let described = described.and_then(|()| head::prepare_described(&mut head, &worker.gateway, &worker.filter));
        // After `describe`, so that the access log has the request of the client.
        let mut tracker = RequestTracker::begin(self, &head);
        tracker.client(client);
        if let Err(Rejected { status: own, detail }) = described {
            let mut response = rejected(local_response::problem(status.unwrap_or(own), detail), tracker);
            reuse.announce(response.headers_mut());
            return response.into();
        }
        let scheme = RequestScheme::default().or_forwarded();
        let attributes = HttpAttributes::of_head(&head, Some(client)).with_scheme(scheme);
        match worker.filter.acquire(&attributes).now() {
            Ok(decided) => answer(&worker.filter, decided, (&head, client), status, reuse, tracker).into(),
            Err(waiting) => {
                let filter = worker.filter.clone();
                Box::pin(async move { answer(&filter, waiting.await, (&head, client), status, reuse, tracker) }).into()
            }
        }
    }
}

/// Returns the status of all answers but 204, if the path sets it: `/check/403`.
fn fixed_status(uri: &Uri) -> Result<Option<StatusCode>, Rejected> {
    let unknown = Rejected { status: StatusCode::NOT_FOUND, detail: "expected `/check` or `/check/403`" };
    let rest = uri.path().strip_prefix(PATH).ok_or(unknown)?;
    if rest.is_empty() {
        return Ok(None);
    }
    let status = rest.strip_prefix('/').and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok());
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    status.map(Some).ok_or(unknown)
}

/// Builds a rejection of the check itself.
fn bad(detail: &'static str) -> Rejected {
    Rejected { status: StatusCode::BAD_REQUEST, detail }
}

/// Replaces the head of the check by that of the request that it describes. On an error, it stays as it was.
fn describe(head: &mut Parts) -> Result<(), Rejected> {
    // Each with whether it is repeated.
    let (mut uri, mut method, mut host) = ((None, false), (None, false), (None, false));
    // One pass over all headers: finding one by its name takes a hash of the name.
    for (name, value) in &head.headers {
        let (found, is_repeated) = match name {
            name if *name == URI => &mut uri,
            name if *name == METHOD => &mut method,
            name if *name == FORWARDED_HOST => &mut host,
            _ => continue,
        };
        *is_repeated |= found.replace(value).is_some();
    }
    let uri = only(uri, "the check has several `X-Forwarded-Uri`")?;
    let method = only(method, "the check has several `X-Forwarded-Method`")?;
    let host = only(host, "the check has several `X-Forwarded-Host`")?;
    let uri = uri.ok_or(bad("the check has no `X-Forwarded-Uri`"))?;
    let has_method = method.is_some();
    let method = match method {
        Some(method) => Method::from_bytes(method.as_bytes()).map_err(|_| bad("invalid `X-Forwarded-Method`"))?,
        None => Method::GET,
    };
    let uri = head::parse_target(uri.as_bytes(), &method);
    // The host is in a header of its own.
    let uri = uri.filter(|uri| uri.authority().is_none()).ok_or(bad("invalid `X-Forwarded-Uri`"))?;
    // Without a host the request has none, rather than that of this service. HTTP/1.0 allows it.
    let host = host.cloned();
    let version = if host.is_some() { Version::HTTP_11 } else { Version::HTTP_10 };
    (head.uri, head.method, head.version) = (uri, method, version);
    head.headers.remove(&URI);
    if has_method {
        head.headers.remove(&METHOD);
    }
    match host {
        Some(host) => {
            head.headers.remove(&FORWARDED_HOST);
            head.headers.insert(HOST, host);
        }
        None => {
            head.headers.remove(HOST);
        }
    }
    Ok(())
}

/// Returns the value of a header unless it is repeated.
fn only<T>((value, is_repeated): (Option<T>, bool), several: &'static str) -> Result<Option<T>, Rejected> {
    if is_repeated { Err(bad(several)) } else { Ok(value) }
}

fn answer(
    filter: &Filter,
    decided: Result<Permit, Denial>,
    (head, client): (&Parts, IpAddr),
    status: Option<StatusCode>,
    reuse: ConnReuse,
    mut tracker: RequestTracker,
) -> Response<ResponseBody> {
    diana_http::log(Verdict::of(&decided), head, Some(client), SERVICE);
    tracker.decided(Verdict::of(&decided));
    // A request over a limit can't be rerouted from here.
    let denial = match decided {
        Ok(permit) => {
            let mut permit = filter.permit(permit);
            if let Err(mut forbidden) = filter.check_permission(head, Some(client)) {
                // It counts, as in the gateway.
                permit.begin();
                *forbidden.status_mut() = status.unwrap_or(forbidden.status());
                reuse.announce(forbidden.headers_mut());
                return rejected(forbidden, tracker);
            }
            tracker.outcome = Outcome::Answered;
            let (mut head, body) = permit.finish_check(local_response::allowed()).into_parts();
            drop(body);
            reuse.announce(&mut head.headers);
            return respond(Response::from_parts(head, http_body_util::Full::default()), tracker);
        }
        Err(denial) => filter.denial(denial, &HttpAttributes::of_head(head, Some(client))),
    };
    tracker.outcome = Outcome::Denied;
    // Not that of the response: it is 200 for a gRPC call, and the proxy would forward the request.
    let status = status.unwrap_or(denial.status());
    let mut response = denial.into_response();
    *response.status_mut() = status;
    reuse.announce(response.headers_mut());
    respond(response, tracker)
}
