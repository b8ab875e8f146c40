//! Sends a request to an upstream: over a pooled connection or a new one. It is sent again, also to another upstream,
//! if none has started to process it, or a pooled connection was closed and it is safe to send twice.

use super::endpoint::{ConnAge, Endpoint, PooledConn};
use super::http1::{self, Http1};
use super::{Balancer, UpstreamBody, UpstreamError, Upstreams, WireError, http2};
use crate::http2::StreamHandle;
use crate::request::RequestBodyStream;
use crate::request::head::UpstreamRequest;
use diana_rules::upstream_url::Upstream;
use http::{Method, Response, StatusCode};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

/// How often a request is tried on one upstream that refuses its streams.
const MAX_TRIES: u32 = 3;

/// A response, and the upstream that sent it.
pub(crate) struct UpstreamResponse {
    pub(crate) response: Response<UpstreamBody>,
    pub(crate) endpoint: Arc<Endpoint>,
}

impl Upstreams {
    /// Sends a request to the upstream that a rule names.
    pub(crate) async fn send_to(
        &self,
        upstream: &Upstream,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let balancer = self.balancer(std::slice::from_ref(upstream));
        self.send(&balancer, request, body).await
    }

    /// Sends a request to the next upstream, or to another one if no byte of it has been sent yet.
    pub(crate) async fn send(
        &self,
        balancer: &Balancer,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<UpstreamResponse, UpstreamError> {
        if balancer.endpoints.is_empty() {
            return Err(UpstreamError::NoUpstream);
        }
        let endpoint = balancer.next(self.deadlines.now());
        let now = self.deadlines.now();
        let pooled = poll_fn(|context| Poll::Ready(endpoint.idle(context, now))).await;
        // The common case: a pooled connection. The other cases are boxed, so that this future stays small.
        let (pooled, body, retry) = if let Some(PooledConn::Http1(connection, age)) = pooled {
            let sent = self.send_over_http1(endpoint, connection, age, request, body).await;
            match sent {
                Ok(response) => {
                    endpoint.succeeded();
                    return Ok(response);
                }
                // The pooled connection was closed meanwhile, which is not a failure.
                Err(SendError::Untouched(body, _)) => (None, body, Retry::Available),
                Err(SendError::Closed(_)) => (None, RequestBodyStream::empty(), Retry::Used),
                Err(SendError::Failed(error)) => {
                    endpoint.failed(&error, self.deadlines.now());
                    return Err(error);
                }
            }
        } else {
            (pooled, body, Retry::Available)
        };
        Box::pin(self.send_with_retries(balancer, endpoint, pooled, request, body, retry)).await
    }

    /// Sends a request to an upstream, starting with a connection that may be closed, and to the others if no byte of
    /// it has been sent yet.
    async fn send_with_retries(
        &self,
        balancer: &Balancer,
        first: &Arc<Endpoint>,
        pooled: Option<PooledConn>,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
        mut retry: Retry,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let (mut endpoint, mut pooled, mut body) = (first, pooled, body);
        let mut remaining = balancer.endpoints.len();
        loop {
            let error = match self.send_to_endpoint(endpoint, pooled.take(), request, body, &mut retry).await {
                Ok(response) => {
                    endpoint.succeeded();
                    return Ok(response);
                }
                Err(error) => error,
            };
            endpoint.failed(error.cause(), self.deadlines.now());
            remaining -= 1;
            match error {
                SendError::Untouched(unsent, _) if remaining > 0 => body = unsent,
                SendError::Untouched(_, cause) | SendError::Closed(cause) | SendError::Failed(cause) => {
                    return Err(cause);
                }
            }
            endpoint = balancer.next(self.deadlines.now());
        }
    }

    /// Sends a request to one upstream. A pooled connection that was closed, or accepts no more streams, is not a
    /// failure: another one is used.
    async fn send_to_endpoint(
        &self,
        endpoint: &Arc<Endpoint>,
        pooled: Option<PooledConn>,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
        retry: &mut Retry,
    ) -> Result<UpstreamResponse, SendError> {
        let (mut body, mut resets) = (body, 0);
        let mut connection = match pooled {
            Some(pooled) => Ok(pooled),
            None if *retry == Retry::Available => endpoint.ready(&self.connector, &self.deadlines).await,
            None => endpoint.connect(&self.connector, &self.deadlines).await,
        };
        loop {
            let (sent, age) = match connection {
                Ok(PooledConn::Http1(connection, age)) => {
                    (self.send_over_http1(endpoint, connection, age, request, body).await, age)
                }
                Ok(PooledConn::Http2(slot, age)) => {
                    (self.send_over_http2(endpoint, slot, age, request, body).await, age)
                }
                Err(error) => return Err(SendError::Untouched(body, error)),
            };
            let error = match sent {
                Err(error) if age == ConnAge::Reused => error,
                sent => return sent,
            };
            tracing::debug!("a pooled connection to {} failed: {}", endpoint.upstream, error.cause());
            body = match error {
                SendError::Untouched(body, error) => {
                    // A closed connection is not returned again, so the loop ends.
                    resets += u32::from(error.is_stream_reset());
                    if resets == MAX_TRIES {
                        return Err(SendError::Untouched(body, error));
                    }
                    body
                }
                SendError::Closed(_) if *retry == Retry::Available => {
                    *retry = Retry::Used;
                    RequestBodyStream::empty()
                }
                error => return Err(error),
            };
            connection = endpoint.connect(&self.connector, &self.deadlines).await;
        }
    }

    async fn send_over_http1(
        &self,
        endpoint: &Arc<Endpoint>,
        mut connection: Box<Http1>,
        age: ConnAge,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<UpstreamResponse, SendError> {
        let had_body = !body.is_empty();
        match connection.send(request, endpoint.authority.as_bytes(), body, self.timeout).await {
            http1::Sent::Response(response) => {
                let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let mut response = response.map(|()| UpstreamBody::http1(connection, endpoint));
                if !is_switching {
                    response.body_mut().release_at_end();
                }
                Ok(UpstreamResponse { response, endpoint: Arc::clone(endpoint) })
            }
            http1::Sent::Untouched(body, error) => Err(SendError::Untouched(body, error)),
            http1::Sent::Failed(error) => {
                // A retry after an invalid response would fail in the same way.
                let is_broken = matches!(error, UpstreamError::Broken(WireError::Closed | WireError::Io(_)));
                let is_closed = age == ConnAge::Reused && is_broken && connection.is_silent();
                Err(SendError::new(error, is_closed && !had_body && is_safe_to_retry(request)))
            }
        }
    }

    async fn send_over_http2(
        &self,
        endpoint: &Arc<Endpoint>,
        slot: http2::Slot,
        age: ConnAge,
        request: UpstreamRequest<'_>,
        body: RequestBodyStream,
    ) -> Result<UpstreamResponse, SendError> {
        let had_body = !body.is_empty();
        let client = request.head.extensions.get::<StreamHandle>();
        let request_http2 = request.for_http2(&endpoint.upstream, body);
        let sent = http2::send(slot, request_http2, self.deadlines.add(), self.timeout, client).await;
        match sent {
            http2::Sent::Response(response) => {
                let response = response.map(UpstreamBody::http2);
                Ok(UpstreamResponse { response, endpoint: Arc::clone(endpoint) })
            }
            http2::Sent::Untouched(body, error) => Err(SendError::Untouched(body, error)),
            http2::Sent::Failed(error) => {
                // A reset stream is the upstream's response to the request, not a closed connection.
                let is_broken = matches!(&error, UpstreamError::Broken(WireError::Http2(error)) if error.is_io());
                let is_closed = age == ConnAge::Reused && is_broken;
                Err(SendError::new(error, is_closed && !had_body && is_safe_to_retry(request)))
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
    fn new(error: UpstreamError, is_retryable: bool) -> Self {
        if is_retryable { Self::Closed(error) } else { Self::Failed(error) }
    }

    fn cause(&self) -> &UpstreamError {
        match self {
            Self::Untouched(_, error) | Self::Closed(error) | Self::Failed(error) => error,
        }
    }
}

/// Whether a request that an upstream may have seen can be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    Available,
    /// It has been retried.
    Used,
}

/// Returns `true` if a request without a body may be sent twice: an upstream may close a connection just when it is
/// reused.
fn is_safe_to_retry(request: UpstreamRequest<'_>) -> bool {
    // An upgrade takes over the client's connection, so it can't be retried.
    request.upgrade.is_none() && matches!(request.head.method, Method::GET | Method::HEAD | Method::OPTIONS)
}
