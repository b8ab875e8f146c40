//! Forwards an allowed request: through the other filters, to an upstream, and back with the response.
//!
//! The whole state is in one box, and the futures inside only borrow it: moving a request's parts between futures would
//! cost more than the work on them.

mod upgrade;

use crate::connection::Connection;
use crate::http1::OnUpgrade;
use crate::request::head::{self, TrailerFilter, UpstreamRequest};
use crate::request::{BodyFault, BodyProgress, RequestBody, RequestBodyStream, RequestTracker, closing};
use crate::response::{ResponseBody, local_response};
use crate::upstream::{Balancer, UpstreamError, UpstreamResponse};
use crate::worker::NoUpstream;
use bytes::Bytes;
use diana::{Clock, SystemClock};
use diana_http::RequestPermit;
use diana_metrics::Outcome;
use diana_rules::rule::HeldUntil;
use diana_rules::ruleset::CompiledRule;
use diana_rules::upstream_url::Upstream;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An allowed request.
pub(crate) struct ProxyRequest {
    connection: Arc<Connection>,
    head: Parts,
    /// Present until it is sent upstream.
    body: Option<RequestBody>,
    /// The progress of the body once it is being sent.
    progress: Option<Arc<BodyProgress>>,
    client: IpAddr,
    permit: RequestPermit,
    tracker: RequestTracker,
}

/// The result of forwarding a request.
enum ProxyOutcome {
    /// A local response, and the outcome to record.
    Local(Response<Full<Bytes>>, Outcome),
    /// The request is allowed, and there is no upstream to forward it to.
    Allowed,
    Responded {
        upstream: UpstreamResponse,
        took: Duration,
        /// The client's side of the upgrade, if it asked for one.
        client_upgrade: Option<OnUpgrade>,
    },
    /// The upstream did not respond.
    Failed(UpstreamError),
}

impl ProxyRequest {
    pub(crate) fn new(
        connection: Arc<Connection>,
        head: Parts,
        body: RequestBody,
        client: IpAddr,
        permit: RequestPermit,
        tracker: RequestTracker,
    ) -> Self {
        Self { connection, head, body: Some(body), progress: None, client, permit, tracker }
    }

    /// Returns `true` if the request continues after its client disconnects.
    pub(crate) fn outlives_client(&self) -> bool {
        outlives_client(&self.permit)
    }

    /// Runs in its own task, so that the request continues after its client disconnects. Its response is then read and
    /// dropped.
    pub(crate) fn run_detached(self) -> Pin<Box<impl Future<Output = Response<ResponseBody>> + Send>> {
        let (sender, receiver) = oneshot::channel();
        let running = self.run();
        let task = tokio::spawn(async move {
            if let Err(mut unsent) = sender.send(running.await) {
                unsent.body_mut().client_disconnected();
            }
        });
        Box::pin(async move {
            match receiver.await {
                Ok(response) => response,
                // The task ends without a response if it panics, as in a custom filter: then the connection is closed,
                // like without a task. Or the whole runtime shuts down.
                Err(_) => match task.await {
                    Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                    _ => std::future::pending().await,
                },
            }
        })
    }

    /// Forwards the request and returns the response.
    pub(crate) fn run(mut self) -> Pin<Box<impl Future<Output = Response<ResponseBody>> + Send>> {
        Box::pin(async move {
            let outcome = self.forward().await;
            self.finish(outcome)
        })
    }

    /// Forwards the request up to the head of the response.
    async fn forward(&mut self) -> ProxyOutcome {
        let Self { connection, head, body, progress, client, permit, tracker } = self;
        let (worker, client) = (&*connection.worker, *client);
        // A request that a later filter rejects still counts: otherwise guessing signatures would be free.
        permit.begin();
        if !worker.chain.is_idle()
            && let Err(denial) = Box::pin(worker.chain.check(head, client)).await
        {
            tracing::debug!("a request of {client} was denied by the filter `{}`", denial.by);
            return ProxyOutcome::Local(denial.response, Outcome::Rejected);
        }
        let target = match permit.reroute_to() {
            Some(upstream) => Target::One(upstream),
            None => match connection.target(head, client) {
                Ok(balancer) => Target::Balancer(balancer),
                Err(NoTarget::Respond(response)) => return ProxyOutcome::Local(*response, Outcome::Answered),
                Err(NoTarget::Allow) => return ProxyOutcome::Allowed,
            },
        };
        // HTTP/1 requests with an `Upgrade` header have it.
        let client_upgrade = head.extensions.remove::<OnUpgrade>();
        let upgrade = client_upgrade.as_ref().and_then(|_| head::upgrade(head));
        let client_upgrade = client_upgrade.filter(|_| upgrade.is_some());
        let (body, body_progress) = connection.body(head, body.take(), permit);
        tracker.body(body_progress.as_ref());
        *progress = body_progress;
        let request = UpstreamRequest { head, conn_info: &connection.conn_info, upgrade: upgrade.as_ref() };
        let mut start = SystemClock.now();
        let sent = match target {
            Target::Balancer(balancer) => worker.upstreams.send(&balancer, request, body, &mut start).await,
            Target::One(upstream) => Box::pin(worker.upstreams.send_to(upstream, request, body, &mut start)).await,
        };
        match sent {
            Ok(upstream) => ProxyOutcome::Responded { upstream, took: SystemClock.now().since(start), client_upgrade },
            Err(error) => ProxyOutcome::Failed(error),
        }
    }

    /// Builds the client's response.
    fn finish(self, outcome: ProxyOutcome) -> Response<ResponseBody> {
        let Self { connection, head, body, progress, mut permit, mut tracker, .. } = self;
        match outcome {
            ProxyOutcome::Responded {
                upstream: UpstreamResponse { mut response, in_flight },
                took,
                client_upgrade,
            } => {
                if response.status() == StatusCode::NO_CONTENT {
                    // RFC 9110, section 8.6. HTTP/2 clients treat it as a malformed response.
                    response.headers_mut().remove(CONTENT_LENGTH);
                }
                if let Some(progress) = &progress {
                    permit.waited_for_client(progress.waited());
                }
                tracker.responded(in_flight, took);
                let is_rerouted = permit.reroute_to().is_some();
                tracker.outcome = if is_rerouted { Outcome::Rerouted } else { Outcome::Forwarded };
                tracker.status(response.status());
                head::recycle(head.headers);
                if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    let outlives_client = outlives_client(&permit);
                    let mut response = permit.finish(response).map(|body| ResponseBody::upstream(body, tracker));
                    if outlives_client {
                        response.body_mut().read_to_end_within(connection.worker.gateway.timeouts.response);
                    }
                    return response;
                }
                let Some(client) = client_upgrade else {
                    tracker.outcome = Outcome::Failed;
                    let detail = "the upstream switched protocols without a request to upgrade";
                    let response = local_response::problem(StatusCode::BAD_GATEWAY, detail);
                    tracker.status(response.status());
                    return permit.finish(response).map(|body| ResponseBody::local_with_permit(body, tracker));
                };
                upgrade::open(connection, client, response, permit, tracker)
            }
            ProxyOutcome::Local(response, outcome) => {
                tracker.outcome = outcome;
                tracker.status(response.status());
                let mut response = permit.finish(response).map(|body| ResponseBody::local_with_permit(body, tracker));
                if let Some(body) = body {
                    connection.drain(body, &head, response.headers_mut());
                }
                response
            }
            ProxyOutcome::Allowed => {
                let response = local_response::allowed();
                tracker.outcome = Outcome::Answered;
                tracker.status(response.status());
                let response = permit.finish_check(response);
                let mut response = response.map(|body| ResponseBody::local_with_permit(body, tracker));
                if let Some(body) = body {
                    connection.drain(body, &head, response.headers_mut());
                }
                response
            }
            ProxyOutcome::Failed(error) => {
                let response = connection.failed(&error, progress.as_deref(), &mut tracker);
                tracker.status(response.status());
                permit.finish(response).map(|body| ResponseBody::local_with_permit(body, tracker))
            }
        }
    }
}

/// Returns `true` if a request continues after its client disconnects: a rule holds its permit until the upstream is
/// done.
fn outlives_client(permit: &RequestPermit) -> bool {
    let (verdict, found) = (permit.verdict(), permit.verdict().matches());
    let holds = |rule: &CompiledRule| rule.rule().held_until == HeldUntil::UpstreamDone;
    found.is_held()
        && verdict.is_granted()
        && found.matched().iter().any(|matched| verdict.rules().rule(matched.rule).is_some_and(holds))
}

/// The upstreams a request is sent to.
enum Target<'a> {
    Balancer(Arc<Balancer>),
    One(&'a Upstream),
}

/// What happens to an allowed request that no upstream gets.
enum NoTarget {
    /// It gets a local response.
    Respond(Box<Response<Full<Bytes>>>),
    /// The answer is only that it is allowed; its actual response is not known here.
    Allow,
}

impl Connection {
    /// Returns the upstreams for a request, or what happens without one.
    fn target(&self, head: &Parts, client: IpAddr) -> Result<Arc<Balancer>, NoTarget> {
        let routing = self.worker.routing.lock();
        if let Some(balancer) = routing.balancer(head, client) {
            return Ok(Arc::clone(balancer));
        }
        Err(NoTarget::Respond(Box::new(match self.worker.no_upstream {
            NoUpstream::Echo => local_response::echo(head, client),
            // If there are routes, requests are meant to be forwarded.
            NoUpstream::Allow if routing.has_routes() => local_response::upstream_error(&UpstreamError::NoUpstream),
            NoUpstream::Allow | NoUpstream::Check => return Err(NoTarget::Allow),
        })))
    }

    /// Returns the request's body as a stream to the upstream, and its progress.
    fn body(
        &self,
        head: &Parts,
        body: Option<RequestBody>,
        permit: &RequestPermit,
    ) -> (RequestBodyStream, Option<Arc<BodyProgress>>) {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else { return (RequestBodyStream::empty(), None) };
        let gateway = &self.worker.gateway;
        let deadline = self.worker.deadlines.add();
        let body = permit.request_body(body);
        let trailers = TrailerFilter::new(head, self.conn_info.trust);
        let (body, progress) =
            RequestBodyStream::new(body, trailers, deadline, gateway.timeouts.body, gateway.bounds.body);
        (body, Some(progress))
    }

    /// Returns the response if the upstream did not respond. The cause is often the client's body.
    fn failed(
        &self,
        error: &UpstreamError,
        progress: Option<&BodyProgress>,
        tracker: &mut RequestTracker,
    ) -> Response<Full<Bytes>> {
        let Some(fault) = progress.and_then(BodyProgress::fault) else {
            tracker.outcome =
                if matches!(error, UpstreamError::NoUpstream) { Outcome::Answered } else { Outcome::Failed };
            return local_response::upstream_error(error);
        };
        tracker.outcome = Outcome::Rejected;
        let (status, detail) = match fault {
            BodyFault::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            BodyFault::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body was sent too slowly"),
            BodyFault::Broken => (StatusCode::BAD_REQUEST, "the body is invalid"),
        };
        closing(local_response::problem(status, detail))
    }
}
