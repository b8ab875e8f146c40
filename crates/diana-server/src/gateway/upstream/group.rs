//! Upstreams that serve the same requests, in turn; and all that a worker knows.

use super::body::Drives;
use super::connection::{Sent, send_http2};
use super::member::{Member, Ready, Reused};
use super::{Connector, Failure, Health, UpstreamBody};
use crate::gateway::client_body::ClientBody;
use crate::gateway::deadlines::Deadlines;
use crate::gateway::head;
use diana_rules::Upstream;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// All upstreams, as one worker knows them.
pub(in crate::gateway) struct Upstreams {
    connector: Connector,
    deadlines: Arc<Deadlines>,
    /// How long the head of an answer may take, and the time between two pieces of its body.
    timeout: Duration,
    /// Shared by all workers.
    health: Arc<Mutex<HashMap<Upstream, Arc<Health>>>>,
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
    ) -> Self {
        Self { connector, deadlines, timeout, health, members: Mutex::default() }
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
        let member = Arc::new(Member::new(upstream.clone(), health));
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
        request: Request<ClientBody>,
    ) -> Result<Answer, Failure> {
        let group = Group { members: vec![self.member(upstream)], next: AtomicUsize::new(0) };
        self.send(&group, request).await
    }

    /// Sends a request to the next of a group, or to another one if nothing of it has gone out yet.
    pub(in crate::gateway) async fn send(
        &self,
        group: &Group,
        request: Request<ClientBody>,
    ) -> Result<Answer, Failure> {
        if group.members.is_empty() {
            return Err(Failure::Nowhere);
        }
        let member = group.next(self.deadlines.now());
        let free = poll_fn(|context| Poll::Ready(member.free(context))).await;
        // The way of almost every request: a connection that was used before. What else can happen takes a box, so that this way
        // is light.
        let (request, ready) = match free {
            Some(Ready::Http1(mut connection, _)) => {
                let mut request = request;
                let spare = spare(&request);
                head::for_http1(&mut request, &member.upstream);
                match connection.send(request, self.timeout).await {
                    Sent::Answered(response) => {
                        member.succeeded();
                        return Ok(self.answer(
                            response,
                            Drives::Http1(Some((connection, Arc::clone(member)))),
                            member,
                        ));
                    }
                    Sent::Untouched(request, _) => (*request, None),
                    Sent::Failed(failure) => match (failure, spare) {
                        // The upstream closed it while the request was on its way; asking again does no harm.
                        (Failure::Broken(_), Some(spare)) => (spare, None),
                        (failure, _) => {
                            member.failed(&failure, self.deadlines.now());
                            return Err(failure);
                        }
                    },
                }
            }
            other => (request, other),
        };
        Box::pin(self.send_with_care(group, member, ready, request)).await
    }

    /// Sends a request to a member of a group, beginning with a connection that may be closed, and to the others if nothing of
    /// it has gone out yet.
    async fn send_with_care(
        &self,
        group: &Group,
        first: &Arc<Member>,
        ready: Option<Ready>,
        request: Request<ClientBody>,
    ) -> Result<Answer, Failure> {
        let (mut member, mut ready, mut request) = (first, ready, request);
        let mut left = group.members.len();
        loop {
            match self.send_by(member, ready.take(), request).await {
                Ok(answer) => {
                    member.succeeded();
                    return Ok(answer);
                }
                Err((failure, untouched)) => {
                    member.failed(&failure, self.deadlines.now());
                    left -= 1;
                    match untouched {
                        Some(untouched) if left > 0 => request = *untouched,
                        _ => return Err(failure),
                    }
                }
            }
            member = group.next(self.deadlines.now());
        }
    }

    /// Sends a request to one upstream; a connection that turns out to be closed is no failure, a new one is made.
    async fn send_by(
        &self,
        member: &Arc<Member>,
        ready: Option<Ready>,
        request: Request<ClientBody>,
    ) -> Result<Answer, (Failure, Option<Box<Request<ClientBody>>>)> {
        let mut request = request;
        let mut ready = match ready {
            Some(ready) => Ok(ready),
            None => member.ready(&self.connector, &self.deadlines).await,
        };
        loop {
            let connection = match ready {
                Ok(connection) => connection,
                Err(failure) => return Err((failure, Some(Box::new(request)))),
            };
            let reused = connection.reused();
            let spare = if reused == Reused::Never { None } else { spare(&request) };
            let failure = match self.send_over(member, connection, request).await {
                Ok(answer) => return Ok(answer),
                Err((failure, Some(untouched))) if reused != Reused::Never => {
                    request = *untouched;
                    failure
                }
                Err((failure, untouched)) => match (failure, spare) {
                    // The upstream closed it while the request was on its way; asking again does no harm.
                    (failure @ Failure::Broken(_), Some(spare)) => {
                        request = spare;
                        failure
                    }
                    (failure, _) => return Err((failure, untouched)),
                },
            };
            tracing::debug!("a connection to {} was closed meanwhile: {failure}", member.upstream);
            ready = member.connect(&self.connector, &self.deadlines).await;
        }
    }

    async fn send_over(
        &self,
        member: &Arc<Member>,
        connection: Ready,
        request: Request<ClientBody>,
    ) -> Result<Answer, (Failure, Option<Box<Request<ClientBody>>>)> {
        let mut request = request;
        let (sent, drives) = match connection {
            Ready::Http1(mut connection, _) => {
                head::for_http1(&mut request, &member.upstream);
                let sent = connection.send(request, self.timeout).await;
                (sent, Drives::Http1(Some((connection, Arc::clone(member)))))
            }
            Ready::Http2(mut sender, _) => {
                head::for_http2(&mut request, &member.upstream);
                let deadline = self.deadlines.add();
                let sent = send_http2(&mut sender, request, &deadline, self.timeout).await;
                if matches!(sent, Sent::Failed(Failure::TimedOut)) {
                    member.forget_http2();
                }
                (sent, Drives::Http2(deadline))
            }
        };
        match sent {
            Sent::Answered(response) => Ok(self.answer(response, drives, member)),
            Sent::Untouched(request, failure) => Err((failure, Some(request))),
            Sent::Failed(failure) => Err((failure, None)),
        }
    }

    fn answer(&self, response: Response<Incoming>, drives: Drives, member: &Arc<Member>) -> Answer {
        let mut response = response.map(|body| UpstreamBody::new(body, drives, self.timeout));
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            response.body_mut().give_back_at_end();
        }
        Answer { response, from: Arc::clone(member) }
    }
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

impl Ready {
    fn reused(&self) -> Reused {
        match self {
            Self::Http1(_, reused) | Self::Http2(_, reused) => *reused,
        }
    }
}

/// A second copy of a request that may be sent twice: an upstream may close a connection just when it is used again.
fn spare(request: &Request<ClientBody>) -> Option<Request<ClientBody>> {
    let is_harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    // An upgrade is the client's connection itself, of which there is one.
    if !is_harmless || !request.body().is_empty() || request.headers().contains_key(http::header::UPGRADE) {
        return None;
    }
    let mut spare = Request::new(ClientBody::empty());
    *spare.method_mut() = request.method().clone();
    *spare.uri_mut() = request.uri().clone();
    *spare.version_mut() = request.version();
    *spare.headers_mut() = request.headers().clone();
    Some(spare)
}
