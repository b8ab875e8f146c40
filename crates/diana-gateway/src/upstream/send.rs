//! Sends a request to an upstream: over a pooled connection or a new one. It is sent again, also to another upstream,
//! if none has started to process it, or a pooled connection was closed and it is safe to send twice; and if it failed in
//! a way that `retries` names.
//!
//! # Retries
//! Without `retries`, a request of which nothing was sent is tried on each upstream once. With it, the policy decides:
//! - only failures that it names, on an upstream that has not failed this request, and that is healthy;
//! - if an upstream may have received the request, only idempotent methods (RFC 9110, section 9.2.2) without a body;
//! - never after the client has got any part of a response, nor if the response has a `Retry-After`: the service then
//!   says when to retry, and other upstreams are most likely as busy;
//! - within the [budget](super::retry_budget).

use super::balancer::Require;
use super::endpoint::{ConnAge, Endpoint, InFlight, PooledConn};
use super::http1::{self, UpstreamConnection};
use super::{Balancer, UpstreamBody, UpstreamError, Upstreams, WireError, http2};
use crate::head::UpstreamRequest;
use crate::paced_upload::PacedUpload;
use crate::section::{RetryOn, RetryPolicy};
use diana::{Clock, SystemClock, Timestamp};
use diana_net::http2_codec::StreamHandle;
use diana_rules::upstream_url::Upstream;
use http::header::RETRY_AFTER;
use http::{Method, Response, StatusCode};
use http_body_util::BodyExt;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The maximum number of attempts on one upstream that refuses the streams of a request.
const MAX_TRIES: u32 = 3;
/// The size up to which a discarded response is read, and the time, so that its connection can be reused.
const MAX_DISCARDED: usize = 64 << 10;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(1);

/// A response, and the request at the upstream that sent it.
pub(crate) struct UpstreamResponse {
    pub(crate) response: Response<UpstreamBody>,
    pub(crate) in_flight: InFlight,
}

/// The progress of the first attempt of a request.
enum FirstAttempt {
    /// The request is still to be sent, over this connection or another one.
    Unsent(Option<PooledConn>, PacedUpload),
    Responded(Response<UpstreamBody>),
    Failed(UpstreamError),
}

impl Upstreams {
    /// Returns a group of only the upstream that a rule names.
    pub(crate) fn pinned_to(&self, upstream: &Upstream) -> Balancer {
        Balancer::of_one(self.endpoint(upstream))
    }

    /// Sends a request to the next upstream, or to another one if no byte of it has been sent yet, or it may be retried.
    /// `start` is set to the time at which it was sent to the upstream that responded.
    pub(crate) async fn send(
        &self,
        balancer: &Balancer,
        request: UpstreamRequest<'_>,
        body: PacedUpload,
        start: &mut Timestamp,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let now = self.deadlines.now();
        let endpoint = balancer.next(now).ok_or(UpstreamError::NoUpstream)?;
        let in_flight = endpoint.begin();
        if let Some(retries) = &balancer.retries {
            retries.count_request(now);
        }
        let had_body = !body.is_empty();
        let pooled = poll_fn(|context| Poll::Ready(endpoint.idle(context, now))).await;
        // The common case: a pooled connection. The other cases are boxed, so that this future stays small.
        let (first, reconnect) = if let Some(PooledConn::Http1(connection, age)) = pooled {
            let sent = self.send_over_http1(endpoint, connection, age, request, body).await;
            match sent {
                Ok(response) => {
                    endpoint.succeeded();
                    match &balancer.retries {
                        Some(retries) if is_retried(&response, retries.policy()) => {
                            (FirstAttempt::Responded(response), Reconnect::Used)
                        }
                        _ => return Ok(UpstreamResponse { response, in_flight }),
                    }
                }
                // The pooled connection was closed meanwhile, which is not a failure.
                Err(SendError::Untouched(body, _)) => (FirstAttempt::Unsent(None, body), Reconnect::Available),
                Err(SendError::Closed(_)) => (FirstAttempt::Unsent(None, PacedUpload::empty()), Reconnect::Used),
                Err(SendError::Failed(error)) => {
                    endpoint.failed(&error, self.deadlines.now());
                    if balancer.retries.is_none() {
                        return Err(error);
                    }
                    (FirstAttempt::Failed(error), Reconnect::Used)
                }
            }
        } else {
            (FirstAttempt::Unsent(pooled, body), Reconnect::Available)
        };
        let sending = Sending { balancer, request, had_body, reconnect, failed: SmallVec::new(), start };
        Box::pin(self.send_with_retries(sending, in_flight, first)).await
    }

    /// Completes the first attempt, and sends the request to other upstreams if they fail.
    async fn send_with_retries(
        &self,
        mut sending: Sending<'_>,
        first: InFlight,
        attempt: FirstAttempt,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let mut in_flight = first;
        let mut sent = match attempt {
            FirstAttempt::Unsent(pooled, body) => self.attempt(&mut sending, &in_flight, pooled, body).await,
            FirstAttempt::Responded(response) => Ok(response),
            FirstAttempt::Failed(error) => Err(SendError::Failed(error)),
        };
        loop {
            let Some(next) = self.next_attempt(&mut sending, &sent, &in_flight.endpoint) else {
                return match sent {
                    Ok(response) => Ok(UpstreamResponse { response, in_flight }),
                    Err(error) => Err(error.into_cause()),
                };
            };
            let body = match sent {
                Ok(response) => {
                    let took = SystemClock.now().since(*sending.start);
                    self.metrics.upstream_seconds.observe(took);
                    in_flight.endpoint.counts.response_seconds.observe(took);
                    discard(response);
                    PacedUpload::empty()
                }
                Err(SendError::Untouched(body, _)) => body,
                Err(SendError::Closed(_) | SendError::Failed(_)) => PacedUpload::empty(),
            };
            in_flight = next.begin();
            *sending.start = SystemClock.now();
            sent = self.attempt(&mut sending, &in_flight, None, body).await;
        }
    }

    /// Sends a request to one upstream, and records whether it responded.
    async fn attempt(
        &self,
        sending: &mut Sending<'_>,
        in_flight: &InFlight,
        pooled: Option<PooledConn>,
        body: PacedUpload,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let endpoint = &in_flight.endpoint;
        let sent = self.send_to_endpoint(endpoint, pooled, sending.request, body, &mut sending.reconnect).await;
        match &sent {
            Ok(_) => endpoint.succeeded(),
            Err(error) => endpoint.failed(error.cause(), self.deadlines.now()),
        }
        sent
    }

    /// Returns the upstream that a request is sent to next; `None` if this is its result.
    fn next_attempt<'a>(
        &self,
        sending: &mut Sending<'a>,
        sent: &Result<Response<UpstreamBody>, SendError>,
        endpoint: &Arc<Endpoint>,
    ) -> Option<&'a Arc<Endpoint>> {
        let now = self.deadlines.now();
        let is_untouched = matches!(sent, Err(SendError::Untouched(..)));
        let Some(retries) = &sending.balancer.retries else {
            if !is_untouched {
                return None;
            }
            sending.failed.push(Arc::clone(endpoint));
            return sending.balancer.next_except(now, &sending.failed, Require::Nothing);
        };
        let policy = retries.policy();
        let is_retried = match sent {
            Ok(response) => is_retried(response, policy),
            Err(error) => error.kind().is_some_and(|kind| policy.on.contains(&kind)),
        };
        let is_safe = is_untouched || !sending.had_body && is_idempotent(sending.request) && !sending.has_answered();
        if !is_retried || !is_safe || sending.failed.len() >= policy.attempts as usize {
            return None;
        }
        sending.failed.push(Arc::clone(endpoint));
        // Without a healthy upstream, only a request that none has received is tried again.
        let required = if is_untouched { Require::Nothing } else { Require::Healthy };
        let next = sending.balancer.next_except(now, &sending.failed, required)?;
        if !retries.try_retry(now) {
            endpoint.counts.retries_denied.increment();
            return None;
        }
        endpoint.counts.retries.increment();
        Some(next)
    }

    /// Sends a request to one upstream. A pooled connection that was closed, or accepts no more streams, is not a
    /// failure: another one is used.
    async fn send_to_endpoint(
        &self,
        endpoint: &Arc<Endpoint>,
        pooled: Option<PooledConn>,
        request: UpstreamRequest<'_>,
        body: PacedUpload,
        reconnect: &mut Reconnect,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let (mut body, mut resets) = (body, 0);
        let mut connection = match pooled {
            Some(pooled) => Ok(pooled),
            None if *reconnect == Reconnect::Available => endpoint.ready(&self.connector, &self.deadlines).await,
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
                SendError::Closed(_) if *reconnect == Reconnect::Available => {
                    *reconnect = Reconnect::Used;
                    PacedUpload::empty()
                }
                error => return Err(error),
            };
            connection = endpoint.connect(&self.connector, &self.deadlines).await;
        }
    }

    async fn send_over_http1(
        &self,
        endpoint: &Arc<Endpoint>,
        mut connection: Box<UpstreamConnection>,
        age: ConnAge,
        request: UpstreamRequest<'_>,
        body: PacedUpload,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let had_body = !body.is_empty();
        match connection.send(request, endpoint.authority.as_bytes(), body, self.timeout).await {
            http1::Sent::Response(response) => {
                let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let mut response = response.map(|()| UpstreamBody::http1(connection, endpoint));
                if !is_switching {
                    response.body_mut().release_at_end();
                }
                Ok(response)
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
        body: PacedUpload,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let had_body = !body.is_empty();
        let client = request.head.extensions.get::<StreamHandle>();
        let request_http2 = request.for_http2(&endpoint.upstream, body);
        let sent = http2::send(slot, request_http2, self.deadlines.add(), self.timeout, client).await;
        match sent {
            http2::Sent::Response(response) => Ok(response.map(UpstreamBody::http2)),
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

/// The reason why a request got no response.
enum SendError {
    /// The upstream has not started to process it; its body can be sent to another one.
    Untouched(PacedUpload, UpstreamError),
    /// A pooled connection was closed. The request is safe to retry.
    Closed(UpstreamError),
    Failed(UpstreamError),
}

impl SendError {
    fn new(error: UpstreamError, is_retryable: bool) -> Self {
        if is_retryable { Self::Closed(error) } else { Self::Failed(error) }
    }

    /// Returns the failure as policies name it; `None` if it is the client's.
    fn kind(&self) -> Option<RetryOn> {
        match self {
            Self::Untouched(..) => Some(RetryOn::ConnectFailure),
            Self::Closed(error) | Self::Failed(error) => match error {
                UpstreamError::Broken(_) => Some(RetryOn::Reset),
                UpstreamError::TimedOut => Some(RetryOn::Timeout),
                _ => None,
            },
        }
    }

    fn into_cause(self) -> UpstreamError {
        match self {
            Self::Untouched(_, error) | Self::Closed(error) | Self::Failed(error) => error,
        }
    }

    fn cause(&self) -> &UpstreamError {
        match self {
            Self::Untouched(_, error) | Self::Closed(error) | Self::Failed(error) => error,
        }
    }
}

/// A request on its way to upstreams.
struct Sending<'a> {
    balancer: &'a Balancer,
    request: UpstreamRequest<'a>,
    had_body: bool,
    reconnect: Reconnect,
    /// The upstreams that have failed it.
    failed: SmallVec<[Arc<Endpoint>; 2]>,
    /// The time at which it was sent to the current upstream.
    start: &'a mut Timestamp,
}

impl Sending<'_> {
    /// Returns `true` if the client has got a part of a response: an interim one.
    fn has_answered(&self) -> bool {
        self.request.head.extensions.get::<StreamHandle>().is_some_and(StreamHandle::has_forwarded)
    }
}

/// Whether a request may be sent again as a pooled connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reconnect {
    Available,
    /// The request has been sent again.
    Used,
}

/// Returns `true` if a request without a body may be sent twice: an upstream may close a connection just when it is
/// reused.
fn is_safe_to_retry(request: UpstreamRequest<'_>) -> bool {
    // An upgrade takes over the client's connection, so it can't be retried.
    request.upgrade.is_none() && matches!(request.head.method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Returns `true` if the policy retries a request with this response.
fn is_retried(response: &Response<UpstreamBody>, policy: &RetryPolicy) -> bool {
    policy.retries_status(response.status()) && !response.headers().contains_key(RETRY_AFTER)
}

/// Returns `true` if a request has the same effect if it is sent twice.
fn is_idempotent(request: UpstreamRequest<'_>) -> bool {
    request.upgrade.is_none() && request.head.method.is_idempotent()
}

/// Reads the rest of a response that the client does not get.
fn discard(response: Response<UpstreamBody>) {
    let mut body = response.into_body();
    let read = async move {
        let mut length = 0;
        while length < MAX_DISCARDED
            && let Some(Ok(frame)) = body.frame().await
        {
            length += frame.data_ref().map_or(0, bytes::Bytes::len);
        }
    };
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(tokio::time::timeout(MAX_DISCARD_TIME, read));
    }
}
