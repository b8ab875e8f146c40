//! Round-robin balancing over upstreams, and all upstreams of a worker.

use super::endpoint::{ConnAge, Endpoint, PooledConn};
use super::http1::{self, Http1};
use super::{Connector, Health, UpstreamBody, UpstreamError, WireError, http2};
use crate::connection::Deadlines;
use crate::http2::StreamHandle;
use crate::request::RequestBodyStream;
use crate::request::head::UpstreamRequest;
use diana_metrics::Shard;
use diana_rules::upstream::Upstream;
use http::{Method, Response, StatusCode};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How often a request is tried on one upstream that refuses its streams.
const MOST_TRIES: u32 = 3;

/// All upstreams of one worker.
pub(crate) struct Upstreams {
    connector: Connector,
    deadlines: Arc<Deadlines>,
    /// The timeout for a response's head, and between two frames of its body.
    timeout: Duration,
    /// Shared by all workers.
    health: Arc<Mutex<HashMap<Upstream, Arc<Health>>>>,
    metrics: Arc<Shard>,
    endpoints: Mutex<HashMap<Upstream, Arc<Endpoint>>>,
}

/// Upstreams that serve the same requests, selected round-robin.
pub(crate) struct Balancer {
    endpoints: Vec<Arc<Endpoint>>,
    next: AtomicUsize,
}

/// A response, and the upstream that sent it.
pub(crate) struct Answer {
    pub(crate) response: Response<UpstreamBody>,
    pub(crate) from: Arc<Endpoint>,
}

impl Upstreams {
    pub(crate) fn new(
        connector: Connector,
        deadlines: Arc<Deadlines>,
        timeout: Duration,
        health: Arc<Mutex<HashMap<Upstream, Arc<Health>>>>,
        metrics: Arc<Shard>,
    ) -> Self {
        Self { connector, deadlines, timeout, health, metrics, endpoints: Mutex::default() }
    }

    /// Creates the balancer of a route.
    pub(crate) fn balancer(&self, upstreams: &[Upstream]) -> Balancer {
        let endpoints = upstreams.iter().map(|upstream| self.endpoint(upstream)).collect::<Vec<_>>();
        Balancer { endpoints, next: AtomicUsize::new(0) }
    }

    fn endpoint(&self, upstream: &Upstream) -> Arc<Endpoint> {
        let mut endpoints = self.endpoints.lock();
        if let Some(endpoint) = endpoints.get(upstream) {
            return Arc::clone(endpoint);
        }
        let health = Arc::clone(self.health.lock().entry(upstream.clone()).or_default());
        let endpoint = Arc::new(Endpoint::new(upstream.clone(), health, Arc::clone(&self.metrics)));
        endpoints.insert(upstream.clone(), Arc::clone(&endpoint));
        endpoint
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn tidy(&self) {
        let endpoints: Vec<_> = self.endpoints.lock().values().cloned().collect();
        endpoints.iter().for_each(|endpoint| endpoint.tidy(self.deadlines.now()));
    }

    /// Sends a request to the upstream that a rule names.
    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<Answer, UpstreamError> {
        let balancer = Balancer { endpoints: vec![self.endpoint(upstream)], next: AtomicUsize::new(0) };
        self.send(&balancer, request, body).await
    }

    /// Sends a request to the next upstream, or to another one if no byte of it has been sent yet.
    pub(crate) async fn send(
        &self,
        balancer: &Balancer,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<Answer, UpstreamError> {
        if balancer.endpoints.is_empty() {
            return Err(UpstreamError::Nowhere);
        }
        let endpoint = balancer.next(self.deadlines.now());
        let now = self.deadlines.now();
        let ready = poll_fn(|context| Poll::Ready(endpoint.free(context, now))).await;
        // The common case: a pooled connection. The other cases are boxed, so that this future stays small.
        let (ready, body, repeat) = if let Some(PooledConn::Http1(connection, reused)) = ready {
            let sent = self.send_over_http1(endpoint, connection, reused, request, body).await;
            match sent {
                Ok(answer) => {
                    endpoint.succeeded();
                    return Ok(answer);
                }
                // The pooled connection was closed meanwhile, which is not a failure.
                Err(SendError::Untouched(body, _)) => (None, body, Repeat::Once),
                Err(SendError::Closed(_)) => (None, RequestBodyStream::empty(), Repeat::Done),
                Err(SendError::Failed(failure)) => {
                    endpoint.failed(&failure, self.deadlines.now());
                    return Err(failure);
                }
            }
        } else {
            (ready, body, Repeat::Once)
        };
        Box::pin(self.send_with_care(balancer, endpoint, ready, request, body, repeat)).await
    }

    /// Sends a request to an upstream, starting with a connection that may be closed, and to the others if no byte of
    /// it has been sent yet.
    async fn send_with_care(
        &self,
        balancer: &Balancer,
        first: &Arc<Endpoint>,
        ready: Option<PooledConn>,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
        mut repeat: Repeat,
    ) -> Result<Answer, UpstreamError> {
        let (mut endpoint, mut ready, mut body) = (first, ready, body);
        let mut left = balancer.endpoints.len();
        loop {
            let unsent = match self.send_by(endpoint, ready.take(), request, body, &mut repeat).await {
                Ok(answer) => {
                    endpoint.succeeded();
                    return Ok(answer);
                }
                Err(unsent) => unsent,
            };
            endpoint.failed(unsent.failure(), self.deadlines.now());
            left -= 1;
            match unsent {
                SendError::Untouched(again, _) if left > 0 => body = again,
                SendError::Untouched(_, failure) | SendError::Closed(failure) | SendError::Failed(failure) => {
                    return Err(failure);
                }
            }
            endpoint = balancer.next(self.deadlines.now());
        }
    }

    /// Sends a request to one upstream. A pooled connection that was closed, or accepts no more streams, is not a
    /// failure: another one is used.
    async fn send_by(
        &self,
        endpoint: &Arc<Endpoint>,
        ready: Option<PooledConn>,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
        repeat: &mut Repeat,
    ) -> Result<Answer, SendError> {
        let (mut body, mut refused) = (body, 0);
        let mut ready = match ready {
            Some(ready) => Ok(ready),
            None if *repeat == Repeat::Once => endpoint.ready(&self.connector, &self.deadlines).await,
            None => endpoint.connect(&self.connector, &self.deadlines).await,
        };
        loop {
            let (sent, reused) = match ready {
                Ok(PooledConn::Http1(connection, reused)) => {
                    (self.send_over_http1(endpoint, connection, reused, request, body).await, reused)
                }
                Ok(PooledConn::Http2(slot, reused)) => {
                    (self.send_over_http2(endpoint, slot, reused, request, body).await, reused)
                }
                Err(failure) => return Err(SendError::Untouched(body, failure)),
            };
            let unsent = match sent {
                Err(unsent) if reused == ConnAge::Before => unsent,
                sent => return sent,
            };
            tracing::debug!("a connection to {} was of no use: {}", endpoint.upstream, unsent.failure());
            body = match unsent {
                SendError::Untouched(body, failure) => {
                    // A closed connection is not returned again, so the loop ends.
                    refused += u32::from(failure.is_stream_reset());
                    if refused == MOST_TRIES {
                        return Err(SendError::Untouched(body, failure));
                    }
                    body
                }
                SendError::Closed(_) if *repeat == Repeat::Once => {
                    *repeat = Repeat::Done;
                    RequestBodyStream::empty()
                }
                unsent => return Err(unsent),
            };
            ready = endpoint.connect(&self.connector, &self.deadlines).await;
        }
    }

    async fn send_over_http1(
        &self,
        endpoint: &Arc<Endpoint>,
        mut connection: Box<Http1>,
        reused: ConnAge,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<Answer, SendError> {
        let had_body = !body.is_empty();
        match connection.send(request, endpoint.authority.as_bytes(), body, self.timeout).await {
            http1::Sent::Answered(response) => {
                let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let mut response = response.map(|()| UpstreamBody::http1(connection, endpoint));
                if !is_switching {
                    response.body_mut().give_back_at_end();
                }
                Ok(Answer { response, from: Arc::clone(endpoint) })
            }
            http1::Sent::Untouched(body, failure) => Err(SendError::Untouched(body, failure)),
            http1::Sent::Failed(failure) => {
                // A retry after an invalid response would fail in the same way.
                let is_broken = matches!(failure, UpstreamError::Broken(WireError::Closed | WireError::Io(_)));
                let is_closed = reused == ConnAge::Before && is_broken && connection.is_silent();
                Err(SendError::new(failure, is_closed && !had_body && is_harmless(request)))
            }
        }
    }

    async fn send_over_http2(
        &self,
        endpoint: &Arc<Endpoint>,
        slot: http2::Slot,
        reused: ConnAge,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<Answer, SendError> {
        let had_body = !body.is_empty();
        let client = request.head.extensions.get::<StreamHandle>();
        let asked = request.for_http2(&endpoint.upstream, body);
        let sent = http2::send(slot, asked, self.deadlines.add(), self.timeout, client).await;
        match sent {
            http2::Sent::Answered(response) => {
                Ok(Answer { response: response.map(UpstreamBody::http2), from: Arc::clone(endpoint) })
            }
            http2::Sent::Untouched(body, failure) => Err(SendError::Untouched(body, failure)),
            http2::Sent::Failed(failure) => {
                // A reset stream is the upstream's response to the request, not a closed connection.
                let is_broken = matches!(&failure, UpstreamError::Broken(WireError::Http2(error)) if error.is_io());
                let is_closed = reused == ConnAge::Before && is_broken;
                Err(SendError::new(failure, is_closed && !had_body && is_harmless(request)))
            }
        }
    }
}

/// Why a request got no response.
enum SendError {
    /// The upstream has not started to process it; its body can be sent to another one.
    Untouched(RequestBodyStream, UpstreamError),
    /// A pooled connection was closed. The request is safe to retry.
    Closed(UpstreamError),
    Failed(UpstreamError),
}

impl SendError {
    fn new(failure: UpstreamError, may_be_repeated: bool) -> Self {
        if may_be_repeated { Self::Closed(failure) } else { Self::Failed(failure) }
    }

    fn failure(&self) -> &UpstreamError {
        match self {
            Self::Untouched(_, failure) | Self::Closed(failure) | Self::Failed(failure) => failure,
        }
    }
}

/// Whether a request that an upstream may have seen can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Once,
    /// It has been retried.
    Done,
}

impl Balancer {
    /// Returns the next healthy upstream, or the next one if none is healthy.
    fn next(&self, now: u64) -> &Arc<Endpoint> {
        let length = self.endpoints.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..length).map(|nth| &self.endpoints[(first.wrapping_add(nth)) % length]);
        turn.clone().find(|endpoint| endpoint.is_well(now)).unwrap_or(&self.endpoints[first % length])
    }
}

/// Returns `true` if a request without a body may be sent twice: an upstream may close a connection just when it is
/// reused.
fn is_harmless(request: UpstreamRequest<'_>) -> bool {
    // An upgrade takes over the client's connection, so it can't be retried.
    request.upgrade.is_none() && matches!(request.head.method, Method::GET | Method::HEAD | Method::OPTIONS)
}
