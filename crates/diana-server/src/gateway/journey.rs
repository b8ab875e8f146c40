//! The way of a request that the rules let go on: to the filters behind Diana's, to an upstream, and back with the answer.
//!
//! All of it lies in one box, and what runs while it waits only borrows it: to move a request's parts from hand to hand would
//! cost more than what is done with them.

use super::answers;
use super::client_body::{BodyFault, ClientBody, Ending, RequestBody};
use super::head::{self, Onward, TrailerFilter};
use super::leave::Leave;
use super::out_body::OutBody;
use super::service::{Connection, closing, own};
use super::site::Destination;
use super::tunnel;
use super::upstream::{Answer, Failure, Group};
use super::visit::Visit;
use crate::metrics::Outcome;
use bytes::Bytes;
use diana::core::{Clock, SystemClock};
use diana_http::HttpAttributes;
use diana_rules::Upstream;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A request that the rules let go on.
pub(super) struct Journey {
    connection: Arc<Connection>,
    head: Parts,
    /// There until it goes on its way.
    body: Option<RequestBody>,
    /// How the body gets on, once it is on its way.
    ending: Option<Arc<Ending>>,
    client: IpAddr,
    leave: Leave,
    visit: Visit,
}

/// Where it led.
enum End {
    /// The gateway itself has the answer, and why.
    Own(Response<Full<Bytes>>, Outcome),
    Answered {
        answer: Answer,
        took: Duration,
        /// The client's side of the tunnel, if it comes to that.
        asked: Option<OnUpgrade>,
    },
    /// No answer came.
    Failed(Failure),
}

impl Journey {
    pub(super) fn new(
        connection: Arc<Connection>,
        head: Parts,
        body: RequestBody,
        client: IpAddr,
        leave: Leave,
        visit: Visit,
    ) -> Self {
        Self { connection, head, body: Some(body), ending: None, client, leave, visit }
    }

    /// Whether it goes on when its client leaves.
    pub(super) fn outlives_client(&self) -> bool {
        self.leave.outlives_client()
    }

    /// Runs in a task of its own, so that it goes on when its client leaves. Its answer is then read and dropped.
    pub(super) fn run_detached(self) -> Pin<Box<impl Future<Output = Response<OutBody>> + Send>> {
        let (answers, answer) = oneshot::channel();
        let running = self.run();
        tokio::spawn(async move {
            if let Err(mut unwanted) = answers.send(running.await) {
                unwanted.body_mut().client_left();
            }
        });
        Box::pin(async move {
            match answer.await {
                Ok(response) => response,
                // The task ends without an answer only when the whole runtime does.
                Err(_) => std::future::pending().await,
            }
        })
    }

    /// Goes there, and back with an answer.
    pub(super) fn run(mut self) -> Pin<Box<impl Future<Output = Response<OutBody>> + Send>> {
        Box::pin(async move {
            let end = self.go().await;
            self.end(end)
        })
    }

    /// Goes all the way to an answer.
    async fn go(&mut self) -> End {
        let Self { connection, head, body, ending, client, leave, visit } = self;
        let (site, client) = (&*connection.site, *client);
        // What a filter behind refuses has still been asked: else guessing at it would be free.
        leave.begin();
        if !site.chain.is_empty()
            && let Err(refusal) = Box::pin(site.chain.check(head, client)).await
        {
            tracing::debug!("a request of {client} was refused by {}", refusal.by);
            return End::Own(refusal.response, Outcome::Rejected);
        }
        let to = match (&*leave, connection.route(head, client), &site.default) {
            (Leave::Divert(diverted), _, _) => To::One(diverted.to()),
            (_, Some(group), _) | (_, None, Destination::Upstreams(group)) => To::Group(group),
            (_, None, Destination::Echo) => return End::Own(answers::echo(head, client), Outcome::Answered),
            (_, None, Destination::Answer) => return End::Own(answers::may_pass(), Outcome::Answered),
        };
        let upgrade = head::upgrade(head);
        let asked = upgrade.is_some().then(|| head.extensions.remove::<OnUpgrade>()).flatten();
        let (body, come) = connection.body(head, body.take(), leave);
        visit.body(come.as_ref());
        *ending = come;
        let request = Onward { head, facts: &connection.facts, upgrade: upgrade.as_ref() };
        let began = SystemClock.now();
        let sent = match to {
            To::Group(group) => site.upstreams.send(group, request, body).await,
            To::One(upstream) => Box::pin(site.upstreams.send_to(upstream, request, body)).await,
        };
        match sent {
            Ok(answer) => End::Answered { answer, took: SystemClock.now().since(began), asked },
            Err(failure) => End::Failed(failure),
        }
    }

    /// What the client gets.
    fn end(self, end: End) -> Response<OutBody> {
        let Self { connection, head, body, ending, mut leave, mut visit, .. } = self;
        match end {
            End::Answered { answer: Answer { mut response, from }, took, asked } => {
                if response.status() == StatusCode::NO_CONTENT {
                    // RFC 9110, section 8.6. hyper removes it for HTTP/1 clients; HTTP/2 clients take it for a broken answer.
                    response.headers_mut().remove(CONTENT_LENGTH);
                }
                if let Some(ending) = &ending {
                    leave.waited_for_client(ending.waited());
                }
                visit.answered_by(&from, took);
                visit.outcome = if matches!(leave, Leave::Divert(_)) { Outcome::Diverted } else { Outcome::Forwarded };
                visit.status(response.status());
                if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                    let outlives_client = leave.outlives_client();
                    let mut response = leave.answer(response, visit);
                    if outlives_client {
                        response.body_mut().read_to_end_within(connection.site.gateway.timeouts.response);
                    }
                    return response;
                }
                let Some(client) = asked else {
                    visit.outcome = Outcome::Failed;
                    let why = "the service changed to what nobody asked for";
                    return own(answers::problem(StatusCode::BAD_GATEWAY, why), visit);
                };
                tunnel::open(connection, client, response, leave, visit)
            }
            End::Own(response, outcome) => {
                visit.outcome = outcome;
                visit.status(response.status());
                connection.without(body, &head, leave.answer_self(response, visit))
            }
            End::Failed(failure) => {
                let response = connection.failed(&failure, ending.as_deref(), &mut visit);
                visit.status(response.status());
                leave.answer_self(response, visit)
            }
        }
    }
}

/// Where a request goes.
enum To<'a> {
    Group(&'a Group),
    One(&'a Upstream),
}

impl Connection {
    /// The upstreams of the route that is for a request.
    fn route(&self, head: &Parts, client: IpAddr) -> Option<&Group> {
        if self.site.routes.is_empty() {
            return None;
        }
        let route = self.site.gateway.route(&HttpAttributes::of_head(head, Some(client)))?;
        self.site.routes.get(route)
    }

    /// The request's body on its way out, and how it ends.
    fn body(&self, head: &Parts, body: Option<RequestBody>, leave: &Leave) -> (ClientBody, Option<Arc<Ending>>) {
        let Some(body) = body.filter(|body| !body.is_end_stream()) else { return (ClientBody::empty(), None) };
        let gateway = &self.site.gateway;
        let deadline = self.site.deadlines.add();
        let body = leave.request_body(body);
        let trailers = TrailerFilter::new(head, self.facts.trust);
        let (body, ending) = ClientBody::new(body, trailers, deadline, gateway.timeouts.body, gateway.bounds.body);
        (body, Some(ending))
    }

    /// What is answered when no answer came. Often it is the client's own fault.
    fn failed(&self, failure: &Failure, ending: Option<&Ending>, visit: &mut Visit) -> Response<Full<Bytes>> {
        let Some(fault) = ending.and_then(Ending::fault) else {
            visit.outcome = if matches!(failure, Failure::Nowhere) { Outcome::Answered } else { Outcome::Failed };
            return answers::failure(failure);
        };
        visit.outcome = Outcome::Rejected;
        let (status, why) = match fault {
            BodyFault::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
            BodyFault::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body came too slowly"),
            BodyFault::Broken => (StatusCode::BAD_REQUEST, "the body was no good"),
        };
        closing(answers::problem(status, why))
    }
}
