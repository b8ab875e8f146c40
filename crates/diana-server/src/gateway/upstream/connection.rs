//! One connection to an upstream: HTTP/1, which one request at a time drives, or HTTP/2, which a task drives for many.

use super::Failure;
use super::connector::{Speaks, UpstreamIo};
use crate::gateway::client_body::{ClientBody, Ending};
use crate::gateway::deadlines::{Deadline, Deadlines};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often an HTTP/2 connection is asked whether it is still there, and how long it has for the answer.
const PING: Duration = Duration::from_secs(10);
const PONG: Duration = Duration::from_secs(5);

/// A new connection.
pub(super) enum Connected {
    Http1(Http1),
    Http2(http2::SendRequest<ClientBody>),
}

/// An HTTP/1 connection. Whoever has it drives it: nothing moves unless it is polled.
pub(in crate::gateway) struct Http1 {
    sender: http1::SendRequest<ClientBody>,
    connection: Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>,
    state: State,
    /// By when the upstream must have said something.
    deadline: Deadline,
    /// When it was last used, on the worker's clock.
    pub(super) used: u64,
    /// The body that it sends, or has sent.
    sends: Option<Arc<Ending>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Closed,
}

/// What became of a request that was sent.
pub(super) enum Sent {
    Answered(Response<Incoming>),
    /// Nothing of it went out; it can go elsewhere.
    Untouched(Box<Request<ClientBody>>, Failure),
    Failed(Failure),
}

/// How long an answer is waited for: the upstream's time begins when it has the whole request.
struct Patience {
    body: Option<Arc<Ending>>,
    seen: u64,
    timeout: Duration,
}

impl Patience {
    fn new(request: &Request<ClientBody>, timeout: Duration) -> Self {
        Self { body: request.body().ending(), seen: 0, timeout }
    }

    /// Whose fault it is that no answer came: an upstream that is sent half a request can't help it.
    fn blame(&self, failure: Failure) -> Failure {
        let is_by_client = self.body.as_ref().is_some_and(|body| body.fault().is_some());
        if is_by_client { Failure::ByClient } else { failure }
    }

    /// Ready when it is over.
    fn poll(&mut self, deadline: &Deadline, context: &mut Context<'_>) -> Poll<()> {
        if deadline.poll(context).is_pending() {
            return Poll::Pending;
        }
        if self.body.as_ref().is_some_and(|body| body.is_under_way(&mut self.seen)) {
            deadline.set(self.timeout);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

pub(super) async fn handshake(
    io: UpstreamIo,
    speaks: Speaks,
    deadlines: &Arc<Deadlines>,
) -> Result<Connected, Failure> {
    let io = TokioIo::new(io);
    if speaks == Speaks::Http2 {
        // One that swallows everything must not be used for ever.
        let made = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .keep_alive_while_idle(true)
            .handshake(io)
            .await;
        let (sender, connection) = made.map_err(Failure::Broken)?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("an HTTP/2 connection to an upstream ended: {error}");
            }
        });
        return Ok(Connected::Http2(sender));
    }
    let (sender, connection) = http1::Builder::new().handshake(io).await.map_err(Failure::Broken)?;
    let connection = Box::pin(connection.with_upgrades());
    let mut http1 = Http1 { sender, connection, state: State::Open, deadline: deadlines.add(), used: 0, sends: None };
    // It takes requests once it has been polled.
    poll_fn(|context| {
        http1.drive(context);
        Poll::Ready(())
    })
    .await;
    Ok(Connected::Http1(http1))
}

impl Http1 {
    /// Lets bytes move.
    pub(super) fn drive(&mut self, context: &mut Context<'_>) {
        if self.state == State::Open {
            match self.connection.as_mut().poll(context) {
                Poll::Pending => {}
                Poll::Ready(ended) => {
                    if let Err(error) = ended {
                        tracing::debug!("a connection to an upstream ended: {error}");
                    }
                    self.state = State::Closed;
                }
            }
        }
    }

    /// Whether it takes a request now: it is open, and the one before is done with.
    pub(super) fn is_free(&mut self, context: &mut Context<'_>) -> bool {
        self.drive(context);
        self.state == State::Open && self.sender.is_ready()
    }

    /// Whether it still sends the body of a request. An upstream may answer before it has all of it.
    pub(super) fn is_sending(&self) -> bool {
        self.sends.as_ref().is_some_and(|body| !body.is_whole())
    }

    /// By when the upstream must have said something.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }

    /// Sends a request, and waits for the head of the answer.
    pub(super) async fn send(&mut self, request: Request<ClientBody>, timeout: Duration) -> Sent {
        let mut patience = Patience::new(&request, timeout);
        self.sends.clone_from(&patience.body);
        self.deadline.set(timeout);
        let sent = {
            let mut answer = pin!(self.sender.try_send_request(request));
            let (connection, state, deadline) = (&mut self.connection, &mut self.state, &self.deadline);
            poll_fn(|context| {
                if *state == State::Open && connection.as_mut().poll(context).is_ready() {
                    *state = State::Closed;
                }
                if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                    return Poll::Ready(Some(answer));
                }
                patience.poll(deadline, context).map(|()| None)
            })
            .await
        };
        self.deadline.clear();
        match sent {
            Some(Ok(response)) => Sent::Answered(response),
            Some(Err(mut error)) => match error.take_message() {
                Some(request) => Sent::Untouched(Box::new(request), Failure::Broken(error.into_error())),
                None => Sent::Failed(patience.blame(Failure::Broken(error.into_error()))),
            },
            None => {
                self.state = State::Closed;
                Sent::Failed(patience.blame(Failure::TimedOut))
            }
        }
    }

    /// Drives it until the request that it sends has gone out; the connection, if all went well. The client has its own time.
    pub(super) async fn sent(mut self) -> Option<Self> {
        poll_fn(|context| {
            self.drive(context);
            let is_over = self.state == State::Closed || !self.is_sending();
            let has_fault = self.sends.as_ref().is_some_and(|body| body.fault().is_some());
            if is_over || has_fault { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        (self.state == State::Open && !self.is_sending()).then_some(self)
    }

    /// Drives it to its end: it has become something else (an upgrade).
    pub(in crate::gateway) async fn finish(mut self) {
        if self.state == State::Open {
            let _ = self.connection.as_mut().await;
        }
    }
}

/// Sends a request over a connection that many use, and waits for the head of the answer.
pub(super) async fn send_http2(
    sender: &mut http2::SendRequest<ClientBody>,
    request: Request<ClientBody>,
    deadline: &Deadline,
    timeout: Duration,
) -> Sent {
    let mut patience = Patience::new(&request, timeout);
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
    match sent {
        Some(Ok(response)) => Sent::Answered(response),
        Some(Err(mut error)) => match error.take_message() {
            Some(request) => Sent::Untouched(Box::new(request), Failure::Broken(error.into_error())),
            None => Sent::Failed(patience.blame(Failure::Broken(error.into_error()))),
        },
        None => Sent::Failed(patience.blame(Failure::TimedOut)),
    }
}
