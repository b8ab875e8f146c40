//! One request, from its head to its response: the place to start reading.
//!
//! 1. **Read**: invalid requests are rejected. The others get the head that the upstream will see, so that rules match on the
//!    same head ([`RequestContext::read`]).
//! 2. **Check**: Diana's filter runs first, unless `filters` of the file has another order. A denied request reaches nothing
//!    after it; one over a limit whose rule says so goes to another upstream ([`RequestContext::decided`]).
//! 3. **Forward**: the other filters run in their order; then the request is sent to its upstream, and its body is streamed
//!    ([`RequestContext::forward`]).
//! 4. **Respond**: the response gets the rate limit headers; its body is streamed ([`RequestContext::respond`]).
//! 5. **Finish**: the request's permits are released, and it is counted and logged, when the last byte has been sent, or the
//!    client has disconnected ([`RecordedBody`]).
//!
//! Most requests are decided at once: a denied one is answered without a future. The rest of an allowed one is one future, in
//! one box with the request's whole state: moving its parts between futures would cost more than the work on them.

use crate::head::{self, TrailerFilter, UpstreamRequest};
use crate::local_response;
use crate::paced_upload::PacedUpload;
use crate::response_body::ResponseBody;
use crate::upgrade;
use crate::upstream::{Balancer, UpstreamError, UpstreamResponse};
use crate::worker::{GatewayWorker, NoUpstream};
use bytes::Bytes;
use diana::ruleset::CompiledRule;
use diana::{AcquireFuture, Clock, Permit, SystemClock, Timestamp, Verdict};
use diana_http::head::{RejectedRequest, check, check_coding, remove_aliases, remove_connection_headers};
use diana_http::{Denial, FilterChain, HttpAttributes, PermitBody, RequestPermit, problem_response};
use diana_metrics::Outcome;
use diana_net::{
    Answer, BodyFault, BodyProgress, ConnReuse, Connection, DeniedRequest, Handler, LocalBody, OnUpgrade, PeerTrust,
    RecordedBody, RequestBody, RequestRecord, recycle,
};
use diana_rules::rule::HeldUntil;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::oneshot;

/// The name of this front end in the log of denials.
const SERVICE: &str = "gateway";

/// A response, and one in progress.
type ClientResponse = Response<RecordedBody<ResponseBody>>;
type Responding = Pin<Box<dyn Future<Output = ClientResponse> + Send>>;

/// A request and what is known about it.
pub(crate) struct RequestContext {
    worker: Arc<GatewayWorker>,
    connection: Arc<Connection>,
    head: Parts,
    /// Present until it is sent upstream, or discarded.
    body: Option<RequestBody>,
    /// The progress of the body once it is being sent.
    upload: Option<Arc<BodyProgress>>,
    client: IpAddr,
    record: RequestRecord,
}

/// The reason why a request is rejected before any rule.
struct Rejected {
    why: RejectedRequest,
    /// Whether the connection can be reused after the response.
    reuse: ConnReuse,
}

/// Whether the file has routes, of which none is that of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HasRoutes {
    Yes,
    No,
}

impl Handler for GatewayWorker {
    type Body = ResponseBody;

    fn serve(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        head: Parts,
        body: RequestBody,
        keep: impl FnOnce(&mut Parts),
    ) -> Answer<ResponseBody> {
        let mut request = RequestContext::new(self, connection, head, body);
        if let Err(Rejected { why, reuse }) = request.read() {
            return Answer::local(request.reject(why.response(), reuse));
        }
        if !self.filters_before.is_idle() {
            keep(&mut request.head);
            return Answer::Later(Box::pin(request.filter_first()));
        }
        match request.acquire().now() {
            Ok(decided) => match request.decided(decided) {
                Ok(permit) => {
                    keep(&mut request.head);
                    Answer::Later(request.start(permit))
                }
                Err(denial) => Answer::Denied(request.deny(denial)),
            },
            Err(waiting) => {
                keep(&mut request.head);
                Answer::Later(Box::pin(request.wait(waiting)))
            }
        }
    }

    fn upkeep(&self) {
        self.upstreams.close_idle();
    }
}

impl RequestContext {
    #[inline(always)]
    fn new(worker: &Arc<GatewayWorker>, connection: &Arc<Connection>, head: Parts, body: RequestBody) -> Self {
        let (client, record) = (connection.info.peer, RequestRecord::begin(connection, &head));
        let (worker, connection) = (Arc::clone(worker), Arc::clone(connection));
        Self { worker, connection, head, body: Some(body), upload: None, client, record }
    }

    /// Reads the request: checks its head, finds the client, and removes what upstreams do not get.
    ///
    /// # Errors
    /// It is rejected before any rule.
    fn read(&mut self) -> Result<(), Rejected> {
        let Self { worker, connection, head, client, record, .. } = self;
        check(head, &worker.state.settings.heads()).map_err(|why| Rejected { why, reuse: ConnReuse::KeepAlive })?;
        // The connection is closed after this one: another server may see the end of such a body elsewhere.
        check_coding(&head.headers).map_err(|why| Rejected { why, reuse: ConnReuse::Close })?;
        if connection.info.trust == PeerTrust::Trusted {
            *client = worker.filter.client(&head.headers, *client);
            record.client(*client);
        }
        remove_connection_headers(&mut head.headers);
        remove_aliases(&mut head.headers, &worker.filter);
        head::add_host(head, &worker.section);
        Ok(())
    }

    /// Ends a rejected request.
    #[cold]
    fn reject(self, response: Response<Full<Bytes>>, reuse: ConnReuse) -> Response<LocalBody> {
        let Self { head, body, record, .. } = self;
        let mut response = record.respond(response, Outcome::Rejected);
        if let Some(body) = body {
            body.drain(&head).announce(response.headers_mut());
        }
        reuse.announce(response.headers_mut());
        response
    }

    /// Asks the rules about the request.
    fn acquire(&self) -> AcquireFuture {
        let request = HttpAttributes::of_head(&self.head, Some(self.client));
        self.worker.filter.acquire(&request.with_scheme(self.connection.info.request_scheme))
    }

    /// Logs and records a decision. A rerouted request continues.
    fn decided(&mut self, decided: Result<Permit, diana::Denial>) -> Result<RequestPermit, Denial> {
        let Self { worker, head, client, record, .. } = self;
        diana_http::log(Verdict::of(&decided), head, Some(*client), SERVICE);
        record.decided(Verdict::of(&decided));
        match decided {
            Ok(permit) => Ok(worker.filter.permit(permit)),
            Err(denial) => worker.filter.rerouted(denial).map_err(|denial| {
                record.outcome = Outcome::Denied;
                worker.filter.denial(denial, &HttpAttributes::of_head(head, Some(*client)))
            }),
        }
    }

    /// Ends a denied request.
    #[inline(always)]
    fn deny(self, denial: Denial) -> DeniedRequest {
        let Self { head, body, record, .. } = self;
        let reuse = body.map_or(ConnReuse::KeepAlive, |body| body.drain(&head));
        recycle(head.headers);
        DeniedRequest { denial, record, reuse }
    }

    /// Serves a request for which other filters run before the limits.
    async fn filter_first(mut self) -> ClientResponse {
        let worker = Arc::clone(&self.worker);
        if let Err(response) = self.filter(&worker.filters_before).await {
            return local(self.reject(response, ConnReuse::KeepAlive));
        }
        let waiting = self.acquire();
        self.wait(waiting).await
    }

    /// Asks other filters about the request. The error is the response of the one that denies it.
    async fn filter(&mut self, filters: &FilterChain) -> Result<(), Response<Full<Bytes>>> {
        let client = self.client;
        filters.check(&mut self.head, client).await.map_err(|denial| {
            tracing::debug!("a request of {client} was denied by the filter `{}`", denial.by);
            denial.response
        })
    }

    /// Serves a request that may have to wait for its decision.
    async fn wait(mut self, waiting: AcquireFuture) -> ClientResponse {
        match self.decided(waiting.await) {
            Ok(permit) => self.start(permit).await,
            Err(denial) => local(self.deny(denial).into_response()),
        }
    }

    /// Starts to forward an allowed request.
    fn start(self, permit: RequestPermit) -> Responding {
        if outlives_client(&permit) { Box::pin(self.forward_detached(permit)) } else { Box::pin(self.forward(permit)) }
    }

    /// Forwards an allowed request in a task of its own, so that it continues after its client disconnects. Its response is
    /// then read and dropped.
    async fn forward_detached(self, permit: RequestPermit) -> ClientResponse {
        let (sender, receiver) = oneshot::channel();
        let forwarding = Box::pin(self.forward(permit));
        let task = tokio::spawn(async move {
            if let Err(mut unsent) = sender.send(forwarding.await) {
                unsent.body_mut().client_disconnected();
            }
        });
        match receiver.await {
            Ok(response) => response,
            // The task ends without a response if it panics, as in a custom filter: then the connection is closed,
            // like without a task. Or the whole runtime shuts down.
            Err(_) => match task.await {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => std::future::pending().await,
            },
        }
    }

    /// Forwards an allowed request, and returns the response.
    #[allow(clippy::manual_async_fn, reason = "the arguments of an `async fn` are in its future twice")]
    fn forward(mut self, mut permit: RequestPermit) -> impl Future<Output = ClientResponse> + Send {
        async move {
            // A request that a later filter rejects still counts: otherwise guessing signatures would be free.
            permit.begin();
            if !self.worker.filters_after.is_idle() {
                let worker = Arc::clone(&self.worker);
                if let Err(response) = Box::pin(self.filter(&worker.filters_after)).await {
                    return self.answer(permit, response, Outcome::Rejected);
                }
            }
            let balancer = match self.upstreams(&permit) {
                Ok(balancer) => balancer,
                Err(routes) => return self.answer_itself(permit, routes),
            };
            let (client_upgrade, protocol) = self.take_upgrade();
            let body = self.take_body(&permit);
            let Self { worker, connection, head, .. } = &self;
            let request = UpstreamRequest { head, conn_info: &connection.info, upgrade: protocol.as_ref() };
            let mut start = SystemClock.now();
            match worker.upstreams.send(&balancer, request, body, &mut start).await {
                Ok(response) => self.respond(permit, response, start, client_upgrade),
                Err(error) => self.fail(permit, &error),
            }
        }
    }

    /// Returns the upstreams of a request: the one that a rule reroutes it to, or those of its route.
    fn upstreams(&self, permit: &RequestPermit) -> Result<Arc<Balancer>, HasRoutes> {
        if let Some(upstream) = permit.reroute_to() {
            return Ok(Arc::new(self.worker.upstreams.pinned_to(upstream)));
        }
        let routing = self.worker.routing.lock();
        let balancer = routing.balancer(&self.head, self.client).map(Arc::clone);
        balancer.ok_or(if routing.has_routes() { HasRoutes::Yes } else { HasRoutes::No })
    }

    /// Takes the client's side of a requested upgrade, and the protocol.
    fn take_upgrade(&mut self) -> (Option<OnUpgrade>, Option<HeaderValue>) {
        // HTTP/1 requests with an `Upgrade` header have it.
        let client_upgrade = self.head.extensions.remove::<OnUpgrade>();
        let protocol = client_upgrade.as_ref().and_then(|_| head::upgrade(&self.head));
        (client_upgrade.filter(|_| protocol.is_some()), protocol)
    }

    /// Takes the body as a stream to the upstream.
    fn take_body(&mut self, permit: &RequestPermit) -> PacedUpload {
        let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) else { return PacedUpload::empty() };
        let Self { connection, head, upload, record, .. } = self;
        let settings = &connection.worker.settings;
        let (body, progress) = PacedUpload::new(
            permit.request_body(body),
            TrailerFilter::new(head, connection.info.trust),
            connection.worker.deadlines.add(),
            settings.timeouts.body,
            settings.bounds.body,
        );
        record.body(&progress);
        *upload = Some(progress);
        body
    }

    /// Passes on the response of an upstream, which got the request at `start`.
    fn respond(
        mut self,
        mut permit: RequestPermit,
        response: UpstreamResponse,
        start: Timestamp,
        client_upgrade: Option<OnUpgrade>,
    ) -> ClientResponse {
        let UpstreamResponse { mut response, in_flight } = response;
        if let Some(upload) = &self.upload {
            permit.waited_for_client(upload.waited());
        }
        let took = SystemClock.now().since(start);
        in_flight.endpoint.counts.response_seconds.observe(took);
        self.record.responded(&in_flight.endpoint.upstream, took);
        let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_switching && client_upgrade.is_none() {
            let detail = "the upstream switched protocols without a request to upgrade";
            return self.answer(permit, problem_response(StatusCode::BAD_GATEWAY, detail), Outcome::Failed);
        }
        if response.status() == StatusCode::NO_CONTENT {
            // RFC 9110, section 8.6. HTTP/2 clients treat it as a malformed response.
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        let Self { connection, head, mut record, .. } = self;
        record.outcome = if permit.reroute_to().is_some() { Outcome::Rerouted } else { Outcome::Forwarded };
        record.status(response.status());
        recycle(head.headers);
        if let Some(client) = client_upgrade.filter(|_| is_switching) {
            let response = upgrade::open(connection, client, response, permit);
            return response.map(|()| RecordedBody::new(ResponseBody::upgrade(in_flight), record));
        }
        let read_to_end = outlives_client(&permit).then_some(connection.worker.settings.timeouts.response);
        let response = permit.finish(response);
        response.map(|body| RecordedBody::new(ResponseBody::upstream(body, in_flight, read_to_end), record))
    }

    /// Answers an allowed request to which no upstream responded. The cause is often the client's body.
    fn fail(self, permit: RequestPermit, error: &UpstreamError) -> ClientResponse {
        let Some(fault) = self.upload.as_deref().and_then(BodyProgress::fault) else {
            let outcome = if matches!(error, UpstreamError::NoUpstream) { Outcome::Answered } else { Outcome::Failed };
            return self.answer(permit, local_response::upstream_error(error), outcome);
        };
        let (status, detail) = match fault {
            BodyFault::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            BodyFault::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body was sent too slowly"),
            BodyFault::Broken => (StatusCode::BAD_REQUEST, "the body is invalid"),
        };
        let mut response = problem_response(status, detail);
        // No valid request can follow. (Over HTTP/2 the header is removed: only the stream ends.)
        ConnReuse::Close.announce(response.headers_mut());
        self.answer(permit, response, Outcome::Rejected)
    }

    /// Answers an allowed request for which there is no upstream.
    fn answer_itself(self, permit: RequestPermit, routes: HasRoutes) -> ClientResponse {
        let response = match (self.worker.no_upstream, routes) {
            (NoUpstream::Echo, _) => local_response::echo(&self.head, self.client),
            // Requests are meant to be forwarded.
            (NoUpstream::Allow, HasRoutes::Yes) => local_response::upstream_error(&UpstreamError::NoUpstream),
            // The answer is only that it is allowed; its actual response is not known here.
            (NoUpstream::Allow, HasRoutes::No) => {
                return self.finish(permit.finish_check(local_response::allowed()), Outcome::Answered);
            }
        };
        self.answer(permit, response, Outcome::Answered)
    }

    /// Answers an allowed request with a local response.
    fn answer(self, permit: RequestPermit, response: Response<Full<Bytes>>, outcome: Outcome) -> ClientResponse {
        self.finish(permit.finish(response), outcome)
    }

    /// Ends an allowed request with a local response.
    fn finish(self, response: Response<PermitBody<Full<Bytes>>>, outcome: Outcome) -> ClientResponse {
        let Self { head, body, mut record, .. } = self;
        record.outcome = outcome;
        record.status(response.status());
        let mut response = response.map(|body| RecordedBody::new(ResponseBody::local_with_permit(body), record));
        if let Some(body) = body {
            body.drain(&head).announce(response.headers_mut());
        }
        response
    }
}

/// Returns a local response to a request without a permit.
fn local(response: Response<LocalBody>) -> ClientResponse {
    response.map(|body| body.map(ResponseBody::from))
}

/// Returns `true` if a request continues after its client disconnects: a rule holds its permit until the upstream is
/// done.
fn outlives_client(permit: &RequestPermit) -> bool {
    let (verdict, matches) = (permit.verdict(), permit.verdict().matches());
    let holds = |rule: &CompiledRule| rule.rule().held_until == HeldUntil::UpstreamDone;
    matches.is_held()
        && verdict.is_granted()
        && matches.matched().iter().any(|matched| verdict.rules().rule(matched.rule).is_some_and(holds))
}
