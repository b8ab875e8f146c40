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

use bytes::Bytes;
use diana::{Denial, Permit, Verdict};
use diana_http::head::{RejectedRequest, parse_target, prepare_described};
use diana_http::{Filter, HttpAttributes, RequestScheme};
use diana_metrics::Outcome;
use diana_net::{Answer, ConnReuse, Connection, Handler, LocalBody, RequestBody, RequestRecord};
use http::header::{HOST, HeaderName};
use http::request::Parts;
use http::{Method, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use std::net::IpAddr;
use std::sync::Arc;

const METHOD: HeaderName = HeaderName::from_static("x-forwarded-method");
const URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PATH: &str = "/check";
/// The name of this service in the log of denials.
const SERVICE: &str = "http";

/// The service.
pub(crate) struct ForwardAuth {
    pub(crate) filter: Filter,
}

/// A check, and what is known about it.
struct Check {
    /// The head of the described request.
    head: Parts,
    client: IpAddr,
    /// The status of all answers but 204, if the path sets it.
    status: Option<StatusCode>,
    reuse: ConnReuse,
    record: RequestRecord,
}

impl Handler for ForwardAuth {
    type Body = Full<Bytes>;

    fn serve(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        mut head: Parts,
        body: RequestBody,
        keep: impl FnOnce(&mut Parts),
    ) -> Answer<Full<Bytes>> {
        let settings = &connection.worker.settings;
        let reuse = body.drain(&head);
        let client = diana_http::forwarded_client(&head.headers, &settings.http.trusted_proxies);
        // Without the header, all requests of the proxy count as one client, rather than as none.
        let client = client.unwrap_or(connection.info.peer);
        let (status, described) = match fixed_status(&head.uri) {
            Ok(status) => (status, describe(&mut head)),
            Err(unknown) => (None, Err(unknown)),
        };
        let described = described.and_then(|()| prepare_described(&mut head, &settings.heads(), &self.filter));
        // After `describe`, so that the access log has the request of the client.
        let mut record = RequestRecord::begin(connection, &head);
        record.client(client);
        let mut check = Check { head, client, status, reuse, record };
        if let Err(RejectedRequest { status, detail }) = described {
            let response = RejectedRequest { status: check.status.unwrap_or(status), detail }.response();
            return Answer::local(check.respond(response, Outcome::Rejected));
        }
        let attributes = HttpAttributes::of_head(&check.head, Some(client));
        match self.filter.acquire(&attributes.with_scheme(RequestScheme::default().or_forwarded())).now() {
            Ok(decided) => Answer::local(check.answer(&self.filter, decided)),
            Err(waiting) => {
                keep(&mut check.head);
                let filter = self.filter.clone();
                Answer::Later(Box::pin(async move { check.answer(&filter, waiting.await) }))
            }
        }
    }
}

impl Check {
    /// Answers with the decision. A request over a limit can't be rerouted from here.
    fn answer(mut self, filter: &Filter, decided: Result<Permit, Denial>) -> Response<LocalBody> {
        diana_http::log(Verdict::of(&decided), &self.head, Some(self.client), SERVICE);
        self.record.decided(Verdict::of(&decided));
        let permit = match decided {
            Ok(permit) => permit,
            Err(denial) => {
                let denial = filter.denial(denial, &HttpAttributes::of_head(&self.head, Some(self.client)));
                // The response's status is 200 for a gRPC call, and the proxy would forward the request.
                let status = self.status.unwrap_or(denial.status());
                let mut response = denial.into_response();
                *response.status_mut() = status;
                return self.respond(response, Outcome::Denied);
            }
        };
        let mut permit = filter.permit(permit);
        if let Err(mut forbidden) = filter.check_permission(&self.head, Some(self.client)) {
            // The request is counted, as in the gateway.
            permit.begin();
            *forbidden.status_mut() = self.status.unwrap_or(forbidden.status());
            return self.respond(forbidden, Outcome::Rejected);
        }
        let mut allowed = Response::new(Full::<Bytes>::default());
        *allowed.status_mut() = StatusCode::NO_CONTENT;
        let response = permit.finish_check(allowed).map(|body| {
            // The answer ends here, and so does what the request holds.
            drop(body);
            Full::default()
        });
        self.respond(response, Outcome::Answered)
    }

    fn respond(self, response: Response<Full<Bytes>>, outcome: Outcome) -> Response<LocalBody> {
        let mut response = self.record.respond(response, outcome);
        self.reuse.announce(response.headers_mut());
        response
    }
}

/// Returns the status of all answers but 204, if the path sets it: `/check/403`.
fn fixed_status(uri: &Uri) -> Result<Option<StatusCode>, RejectedRequest> {
    let unknown = RejectedRequest { status: StatusCode::NOT_FOUND, detail: "expected `/check` or `/check/403`" };
    let rest = uri.path().strip_prefix(PATH).ok_or(unknown)?;
    if rest.is_empty() {
        return Ok(None);
    }
    let status = rest.strip_prefix('/').and_then(|status| StatusCode::from_bytes(status.as_bytes()).ok());
    let status = status.filter(|status| status.is_client_error() || status.is_server_error());
    status.map(Some).ok_or(unknown)
}

/// Builds a rejection of the check itself.
fn bad(detail: &'static str) -> RejectedRequest {
    RejectedRequest { status: StatusCode::BAD_REQUEST, detail }
}

/// Replaces the head of the check by that of the request that it describes. On an error, it stays as it was.
fn describe(head: &mut Parts) -> Result<(), RejectedRequest> {
    // Each value has a flag: whether it is repeated.
    let (mut uri, mut method, mut host) = ((None, false), (None, false), (None, false));
    // One pass over all headers: finding one by its name takes a hash of the name.
    for (name, value) in &head.headers {
        let (field, is_repeated) = match name {
            name if *name == URI => &mut uri,
            name if *name == METHOD => &mut method,
            name if *name == FORWARDED_HOST => &mut host,
            _ => continue,
        };
        *is_repeated |= field.replace(value).is_some();
    }
    let uri = read_once(uri, "the check has several `X-Forwarded-Uri`")?;
    let method = read_once(method, "the check has several `X-Forwarded-Method`")?;
    let host = read_once(host, "the check has several `X-Forwarded-Host`")?;
    let uri = uri.ok_or(bad("the check has no `X-Forwarded-Uri`"))?;
    let has_method = method.is_some();
    let method = match method {
        Some(method) => Method::from_bytes(method.as_bytes()).map_err(|_| bad("invalid `X-Forwarded-Method`"))?,
        None => Method::GET,
    };
    let uri = parse_target(uri.as_bytes(), &method);
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
fn read_once<T>((value, is_repeated): (Option<T>, bool), several: &'static str) -> Result<Option<T>, RejectedRequest> {
    if is_repeated { Err(bad(several)) } else { Ok(value) }
}
