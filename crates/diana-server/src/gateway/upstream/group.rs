//! Upstreams that serve the same requests, in turn; and all that a worker knows.

use super::http1::{self, Http1};
use super::http2;
use super::member::{Member, Ready, Reused};
use super::{Connector, Failure, Fault, Health, UpstreamBody};
use crate::gateway::client_body::ClientBody;
use crate::gateway::deadlines::Deadlines;
use crate::gateway::head::Onward;
use crate::gateway::http2::StreamHandle;
use crate::metrics::Shard;
use diana_rules::Upstream;
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

/// All upstreams, as one worker knows them.
pub(in crate::gateway) struct Upstreams {
    connector: Connector,
    deadlines: Arc<Deadlines>,
    /// How long the head of an answer may take, and the time between two pieces of its body.
    timeout: Duration,
    /// Shared by all workers.
    health: Arc<Mutex<HashMap<Upstream, Arc<Health>>>>,
    metrics: Arc<Shard>,
    members: Mutex<HashMap<Upstream, Arc<Member>>>,
}

/// Upstreams that serve the same requests, in turn.
pub(in crate::gateway) struct Group {
    members: Vec<Arc<Member>>,
    next: AtomicUsize,
}

/// An answer, and who gave it.
pub(in crate::gateway) struct Answer {
    pub(in crate::gateway) response: Response<UpstreamBody>,
    pub(in crate::gateway) from: Arc<Member>,
}

impl Upstreams {
    pub(in crate::gateway) fn new(
        connector: Connector,
        deadlines: Arc<Deadlines>,
        timeout: Duration,
        health: Arc<Mutex<HashMap<Upstream, Arc<Health>>>>,
        metrics: Arc<Shard>,
    ) -> Self {
        Self { connector, deadlines, timeout, health, metrics, members: Mutex::default() }
    }

    /// The upstreams of a route.
    pub(in crate::gateway) fn group(&self, upstreams: &[Upstream]) -> Group {
        let members = upstreams.iter().map(|upstream| self.member(upstream)).collect::<Vec<_>>();
        Group { members, next: AtomicUsize::new(0) }
    }

    fn member(&self, upstream: &Upstream) -> Arc<Member> {
        let mut members = self.members.lock();
        if let Some(member) = members.get(upstream) {
            return Arc::clone(member);
        }
        let health = Arc::clone(self.health.lock().entry(upstream.clone()).or_default());
        let member = Arc::new(Member::new(upstream.clone(), health, Arc::clone(&self.metrics)));
        members.insert(upstream.clone(), Arc::clone(&member));
        member
    }

    /// Closes connections that nobody has used for long.
    pub(in crate::gateway) fn tidy(&self) {
        let members: Vec<_> = self.members.lock().values().cloned().collect();
        members.iter().for_each(|member| member.tidy(self.deadlines.now()));
    }

    /// Sends a request to one upstream, which a rule names.
    pub(in crate::gateway) async fn send_to(
        &self,
        upstream: &Upstream,
        request: Onward<'_>,
        body: ClientBody,
    ) -> Result<Answer, Failure> {
        let group = Group { members: vec![self.member(upstream)], next: AtomicUsize::new(0) };
        self.send(&group, request, body).await
    }

    /// Sends a request to the next of a group, or to another one if nothing of it has gone out yet.
    pub(in crate::gateway) async fn send(
        &self,
        group: &Group,
        request: Onward<'_>,
        body: ClientBody,
    ) -> Result<Answer, Failure> {
        if group.members.is_empty() {
            return Err(Failure::Nowhere);
        }
        let member = group.next(self.deadlines.now());
        let now = self.deadlines.now();
        let ready = poll_fn(|context| Poll::Ready(member.free(context, now))).await;
        // The way of almost every request: a connection that was used before. What else can happen takes a box, so that this way
        // is light.
        let (ready, body, repeat) = if let Some(Ready::Http1(connection, reused)) = ready {
            let sent = self.send_over_http1(member, connection, reused, request, body).await;
            match sent {
                Ok(answer) => {
                    member.succeeded();
                    return Ok(answer);
                }
                // Closed meanwhile, which is no failure.
                Err(Unsent::Untouched(body, _)) => (None, body, Repeat::Once),
                Err(Unsent::Closed(_)) => (None, ClientBody::empty(), Repeat::Done),
                Err(Unsent::Failed(failure)) => {
                    member.failed(&failure, self.deadlines.now());
                    return Err(failure);
                }
            }
        } else {
            (ready, body, Repeat::Once)
        };
        Box::pin(self.send_with_care(group, member, ready, request, body, repeat)).await
    }

    /// Sends a request to a member of a group, beginning with a connection that may be closed, and to the others if nothing of
    /// it has gone out yet.
    async fn send_with_care(
        &self,
        group: &Group,
        first: &Arc<Member>,
        ready: Option<Ready>,
        request: Onward<'_>,
        body: ClientBody,
        mut repeat: Repeat,
    ) -> Result<Answer, Failure> {
        let (mut member, mut ready, mut body) = (first, ready, body);
        let mut left = group.members.len();
        loop {
            let unsent = match self.send_by(member, ready.take(), request, body, &mut repeat).await {
                Ok(answer) => {
                    member.succeeded();
                    return Ok(answer);
                }
                Err(unsent) => unsent,
            };
            member.failed(unsent.failure(), self.deadlines.now());
            left -= 1;
            match unsent {
                Unsent::Untouched(again, _) if left > 0 => body = again,
                Unsent::Untouched(_, failure) | Unsent::Closed(failure) | Unsent::Failed(failure) => {
                    return Err(failure);
                }
            }
            member = group.next(self.deadlines.now());
        }
    }

    /// Sends a request to one upstream. A connection that turns out to be closed, or to take no more streams, is no failure:
    /// another is used.
    async fn send_by(
        &self,
        member: &Arc<Member>,
        ready: Option<Ready>,
        request: Onward<'_>,
        body: ClientBody,
        repeat: &mut Repeat,
    ) -> Result<Answer, Unsent> {
        let (mut body, mut refused) = (body, 0);
        let mut ready = match ready {
            Some(ready) => Ok(ready),
            None if *repeat == Repeat::Once => member.ready(&self.connector, &self.deadlines).await,
            None => member.connect(&self.connector, &self.deadlines).await,
        };
        loop {
            let (sent, reused) = match ready {
                Ok(Ready::Http1(connection, reused)) => {
                    (self.send_over_http1(member, connection, reused, request, body).await, reused)
                }
                Ok(Ready::Http2(slot, reused)) => {
                    (self.send_over_http2(member, slot, reused, request, body).await, reused)
                }
                Err(failure) => return Err(Unsent::Untouched(body, failure)),
            };
            let unsent = match sent {
                Err(unsent) if reused == Reused::Before => unsent,
                sent => return sent,
            };
            tracing::debug!("a connection to {} was of no use: {}", member.upstream, unsent.failure());
            body = match unsent {
                Unsent::Untouched(body, failure) => {
                    // A connection that is gone is not found again, so there is an end to these.
                    refused += u32::from(failure.is_stream_reset());
                    if refused == MOST_TRIES {
                        return Err(Unsent::Untouched(body, failure));
                    }
                    body
                }
                Unsent::Closed(_) if *repeat == Repeat::Once => {
                    *repeat = Repeat::Done;
                    ClientBody::empty()
                }
                unsent => return Err(unsent),
            };
            ready = member.connect(&self.connector, &self.deadlines).await;
        }
    }

    async fn send_over_http1(
        &self,
        member: &Arc<Member>,
        mut connection: Box<Http1>,
        reused: Reused,
        request: Onward<'_>,
        body: ClientBody,
    ) -> Result<Answer, Unsent> {
        let had_body = !body.is_empty();
        match connection.send(request, member.authority.as_bytes(), body, self.timeout).await {
            http1::Sent::Answered(response) => {
                let is_switching = response.status() == StatusCode::SWITCHING_PROTOCOLS;
                let mut response = response.map(|()| UpstreamBody::http1(connection, member));
                if !is_switching {
                    response.body_mut().give_back_at_end();
                }
                Ok(Answer { response, from: Arc::clone(member) })
            }
            http1::Sent::Untouched(body, failure) => Err(Unsent::Untouched(body, failure)),
            http1::Sent::Failed(failure) => {
                // What an upstream answers badly it would answer badly again.
                let is_broken = matches!(failure, Failure::Broken(Fault::Closed | Fault::Io(_)));
                let is_closed = reused == Reused::Before && is_broken && connection.is_silent();
                Err(Unsent::new(failure, is_closed && !had_body && is_harmless(request)))
            }
        }
    }

    async fn send_over_http2(
        &self,
        member: &Arc<Member>,
        slot: http2::Slot,
        reused: Reused,
        request: Onward<'_>,
        body: ClientBody,
    ) -> Result<Answer, Unsent> {
        let had_body = !body.is_empty();
        let client = request.head.extensions.get::<StreamHandle>();
        let asked = request.for_http2(&member.upstream, body);
        let sent = http2::send(slot, asked, self.deadlines.add(), self.timeout, client).await;
        match sent {
            http2::Sent::Answered(response) => {
                Ok(Answer { response: response.map(UpstreamBody::http2), from: Arc::clone(member) })
            }
            http2::Sent::Untouched(body, failure) => Err(Unsent::Untouched(body, failure)),
            http2::Sent::Failed(failure) => {
                // A stream that the upstream resets is its answer to the request, and no closed connection.
                let is_broken = matches!(&failure, Failure::Broken(Fault::Http2(error)) if error.is_io());
                let is_closed = reused == Reused::Before && is_broken;
                Err(Unsent::new(failure, is_closed && !had_body && is_harmless(request)))
            }
        }
    }
}

/// A request that was not answered.
enum Unsent {
    /// The upstream has not begun with it; its body can be sent elsewhere.
    Untouched(ClientBody, Failure),
    /// A connection that was kept open turned out to be closed. It does no harm to send the request again.
    Closed(Failure),
    Failed(Failure),
}

impl Unsent {
    fn new(failure: Failure, may_be_repeated: bool) -> Self {
        if may_be_repeated { Self::Closed(failure) } else { Self::Failed(failure) }
    }

    fn failure(&self) -> &Failure {
        match self {
            Self::Untouched(_, failure) | Self::Closed(failure) | Self::Failed(failure) => failure,
        }
    }
}

/// Whether a request that an upstream may have seen can be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    Once,
    /// It has been.
    Done,
}

impl Group {
    /// Whose turn it is, among those that are well.
    fn next(&self, now: u64) -> &Arc<Member> {
        let length = self.members.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let turn = (0..length).map(|nth| &self.members[(first.wrapping_add(nth)) % length]);
        turn.clone().find(|member| member.is_well(now)).unwrap_or(&self.members[first % length])
    }
}

/// Whether a request without a body may be sent twice: an upstream may close a connection just when it is used again.
fn is_harmless(request: Onward<'_>) -> bool {
    // An upgrade is the client's connection itself, of which there is one.
    request.upgrade.is_none() && matches!(request.head.method, Method::GET | Method::HEAD | Method::OPTIONS)
}
