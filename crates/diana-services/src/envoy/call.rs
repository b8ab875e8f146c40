//! A call: its peer, and how long its message may take to arrive.

use super::EnvoyState;
use super::ext_authz::CHECK;
use super::rate_limit::SHOULD_RATE_LIMIT;
use super::unary_call::{CALL_MEMORY, UnaryCall, no_memory};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tonic::Status;
use tonic::codegen::Service;
use tonic::service::Routes;

/// The timeouts of the message of a call.
#[derive(Clone, Debug)]
pub(super) struct CallTimeouts {
    pub(super) message: Duration,
    /// `true` once the service stops.
    pub(super) stop: watch::Receiver<bool>,
}

/// The calls of one connection.
pub(super) struct CallService {
    state: Arc<EnvoyState>,
    routes: Routes,
    peer: IpAddr,
    timeouts: CallTimeouts,
}

impl CallService {
    pub(super) fn new(state: Arc<EnvoyState>, routes: Routes, peer: IpAddr, timeouts: CallTimeouts) -> Self {
        Self { state, routes, peer, timeouts }
    }
}

/// The beginning of the paths of reflection, the only service to which clients send streams.
const REFLECTION: &str = "/grpc.reflection.";

impl hyper::service::Service<http::Request<Incoming>> for CallService {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let (head, body) = request.into_parts();
        let kind = if head.uri.path().starts_with(REFLECTION) { CallKind::Stream } else { CallKind::Unary };
        let body = CallBody { body, kind, timeouts: self.timeouts.clone(), timeout: None };
        let (state, peer) = (Arc::clone(&self.state), self.peer);
        let Some(memory) = state.options.memory.reserve(CALL_MEMORY) else {
            state.metrics().failed.increment();
            return Box::pin(std::future::ready(Ok(no_memory().into_http())));
        };
        match head.uri.path() {
            SHOULD_RATE_LIMIT => Box::pin(async move {
                let mut call = UnaryCall::new(&head.headers, body, memory);
                drop(head);
                let result = state.should_rate_limit(&mut call).await;
                Ok(call.respond(&state, result))
            }),
            CHECK => Box::pin(async move {
                let mut call = UnaryCall::new(&head.headers, body, memory);
                drop(head);
                let result = state.check(&mut call, peer).await;
                Ok(call.respond(&state, result))
            }),
            // The other services are always ready.
            _ => {
                let call = self.routes.clone().call(http::Request::from_parts(head, body));
                Box::pin(async move {
                    let response = call.await?;
                    // It counts until the client has received all of it.
                    Ok(response.map(|body| {
                        tonic::body::Body::new(body.map_frame(move |frame| {
                            let _ = &memory;
                            frame
                        }))
                    }))
                })
            }
        }
    }
}

/// The messages that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallKind {
    /// One message.
    Unary,
    /// Any number of messages, until it ends the stream.
    Stream,
}

/// The body of a call, for a limited time. The messages of slow clients would use memory as long as they like.
pub(super) struct CallBody {
    body: Incoming,
    kind: CallKind,
    timeouts: CallTimeouts,
    /// Created when the body waits for the client, which is rare.
    timeout: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl CallBody {
    fn new_timeout(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let CallTimeouts { message, mut stop } = self.timeouts.clone();
        match self.kind {
            CallKind::Unary => Box::pin(tokio::time::sleep(message)),
            CallKind::Stream => Box::pin(async move {
                let _ = tokio::time::timeout(message, stop.wait_for(|stop| *stop)).await;
            }),
        }
    }
}

impl Body for CallBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(|error| Status::from_error(Box::new(error)))));
        }
        let mut timeout = self.timeout.take().unwrap_or_else(|| self.new_timeout());
        if timeout.as_mut().poll(context).is_pending() {
            self.timeout = Some(timeout);
            return Poll::Pending;
        }
        Poll::Ready(match self.kind {
            CallKind::Unary => Some(Err(Status::deadline_exceeded("the message did not arrive in time"))),
            CallKind::Stream => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
