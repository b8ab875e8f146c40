//! An HTTP/2 connection to an upstream, which a task drives for many requests.

use super::connector::UpstreamIo;
use super::patience::Patience;
use super::{Failure, Fault};
use crate::gateway::client_body::ClientBody;
use crate::gateway::deadlines::Deadline;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::Builder;
pub(super) use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// How often a connection is asked whether it is still there, and how long it has for the answer.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

/// What became of a request that was sent.
pub(super) enum Sent {
    Answered(Response<Incoming>),
    /// Nothing of it went out; it can go elsewhere.
    Untouched(ClientBody, Failure),
    Failed(Failure),
}

pub(super) async fn handshake(io: UpstreamIo) -> Result<SendRequest<ClientBody>, Failure> {
    // One that swallows everything must not be used for ever.
    let made = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(io))
        .await;
    let (sender, connection) = made.map_err(|error| Failure::Broken(Fault::Http2(error)))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("an HTTP/2 connection to an upstream ended: {error}");
        }
    });
    Ok(sender)
}

/// Sends a request, and waits for the head of the answer.
pub(super) async fn send(
    sender: &mut SendRequest<ClientBody>,
    request: Request<ClientBody>,
    deadline: &Deadline,
    timeout: Duration,
) -> Sent {
    let mut patience = Patience::new(request.body(), timeout);
    deadline.set(timeout);
    let mut answer = pin!(sender.try_send_request(request));
    let sent = poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        patience.poll(deadline, context).map(|()| None)
    })
    .await;
    deadline.clear();
    let broken = |error| Failure::Broken(Fault::Http2(error));
    match sent {
        Some(Ok(response)) => Sent::Answered(response),
        Some(Err(mut error)) => match error.take_message() {
            Some(request) => Sent::Untouched(request.into_body(), broken(error.into_error())),
            None => Sent::Failed(patience.blame(broken(error.into_error()))),
        },
        None => Sent::Failed(patience.blame(Failure::TimedOut)),
    }
}
