//! The life of a request.
//!
//! 1. What no client may ask is rejected ([`head::check`]).
//! 2. Diana's filter stands first. What it refuses touches nothing behind it.
//! 3. The filters behind it, in their order.
//! 4. The request goes to its upstream, or to the one that a rule diverts it to; its body flows as it comes.
//! 5. The answer comes back with the fields that tell the client where it stands; its body flows as it comes. What the request
//!    holds is given back when the last byte has gone out, or the client is gone.

use super::answers;
use super::client_body::{BodyFault, ClientBody, Ending};
use super::facts::Facts;
use super::head::{self, Onward, Rejected};
use super::leave::Leave;
use super::out_body::OutBody;
use super::phase::Phase;
use super::site::{Destination, Site, Store};
use super::tunnel;
use super::unread::{self, After};
use super::upstream::{Answer, Failure, Group};
use super::visit::Visit;
use super::worker::Counted;
use crate::metrics::Outcome;
use bytes::Bytes;
use diana::core::{Clock, SystemClock};
use diana_http::{Checked, HttpAttributes, Refused};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A client's connection, whose requests are served.
pub(super) struct Connection {
    pub(super) site: Arc<Site>,
    pub(super) facts: Facts,
    pub(super) phase: Arc<Phase>,
    /// It counts as open as long as anybody has it: a tunnel, too.
    pub(super) _counted: Counted,
}

/// The requests of a connection, as hyper brings them.
pub(super) struct Requests(pub(super) Arc<Connection>);

impl hyper::service::Service<Request<Incoming>> for Requests {
    type Response = Response<OutBody>;
    type Error = Infallible;
    type Future = Serving;

    fn call(&self, request: Request<Incoming>) -> Serving {
        self.0.begin(request)
    }
}

/// An answer: here already, as those to refused requests mostly are, or on its way.
#[allow(clippy::large_enum_variant, reason = "the large one is what makes a refusal cheap: it takes no box")]
pub(super) enum Serving {
    Here(Option<Response<OutBody>>),
    Coming(Pin<Box<dyn Future<Output = Response<OutBody>> + Send>>),
}

impl Future for Serving {
    type Output = Result<Response<OutBody>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Here(response) => response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response))),
            Self::Coming(response) => response.as_mut().poll(context).map(Ok),
        }
    }
}

impl From<Response<OutBody>> for Serving {
    fn from(response: Response<OutBody>) -> Self {
        Self::Here(Some(response))
    }
}

impl<F: Future<Output = Response<OutBody>> + Send + 'static> From<Pin<Box<F>>> for Serving {
    fn from(response: Pin<Box<F>>) -> Self {
        Self::Coming(response)
    }
}

/// What the rules let a request do; else why it is refused.
fn decided(checked: Checked<Store>, visit: &mut Visit) -> Result<Leave, Refused> {
    let leave = match checked {
        Checked::Refuse(refused) => {
            visit.decided(refused.verdict());
            visit.outcome = Outcome::Refused;
            return Err(refused);
        }
        Checked::Divert(diverted) => Leave::Divert(diverted),
        Checked::Pass(pass) => Leave::Pass(pass),
    };
    visit.decided(leave.verdict());
    Ok(leave)
}

impl Connection {
    /// Answers one request, or begins to.
    fn begin(self: &Arc<Self>, request: Request<Incoming>) -> Serving {
        let site = &self.site;
        let (head, body) = request.into_parts();
        let mut visit = Visit::begin(self, &head);
        if let Err(Rejected { status, why }) = head::check(&head).and_then(|()| fits(site, &head)) {
            return self.without(body, &head, rejected(answers::problem(status, why), visit)).into();
        }
        let client = site.filter.client(&head.headers, self.facts.peer);
        visit.client(client);
        let mut checking = site.filter.check_head(&head, Some(client));
        // Mostly it is decided at once, and a refusal then needs no future at all. Who must wait is polled again.
        match Pin::new(&mut checking).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(checked) => match decided(checked, &mut visit) {
                Ok(leave) => Box::pin(Arc::clone(self).go_on(head, body, client, leave, visit)).into(),
                Err(refused) => self.without(body, &head, own(refused.into_response(), visit)).into(),
            },
            Poll::Pending => {
                let this = Arc::clone(self);
                let waiting = async move {
                    match decided(checking.await, &mut visit) {
                        Ok(leave) => this.go_on(head, body, client, leave, visit).await,
                        Err(refused) => this.without(body, &head, own(refused.into_response(), visit)),
                    }
                };
                Box::pin(waiting).into()
            }
        }
    }

    /// Answers a request that the rules let go on.
    async fn go_on(
        self: Arc<Self>,
        mut head: Parts,
        body: Incoming,
        client: IpAddr,
        mut leave: Leave,
        visit: Visit,
    ) -> Response<OutBody> {
        let site = &self.site;
        // What a filter behind refuses has still been asked: else guessing at it would be free.
        leave.begin();
        if !site.chain.is_empty()
            && let Err(refusal) = site.chain.check(&mut head, client).await
        {
            tracing::debug!("a request of {client} was refused by {}", refusal.by);
            let mut visit = visit;
            visit.outcome = Outcome::Rejected;
            visit.status(refusal.response.status());
            return self.without(body, &head, leave.answer_self(refusal.response, visit));
        }
        if matches!(leave, Leave::Divert(_)) {
            return self.pass_on(head, body, leave, None, visit).await;
        }
        match (self.route(&head, client), &site.default) {
            (Some(group), _) | (None, Destination::Upstreams(group)) => {
                self.pass_on(head, body, leave, Some(group), visit).await
            }
            (None, Destination::Echo) => {
                let echo = answers::echo(&head, client);
                self.without(body, &head, answered(echo, leave, visit))
            }
            (None, Destination::Answer) => self.without(body, &head, answered(answers::may_pass(), leave, visit)),
        }
    }

    /// An answer that did not need the request's body.
    fn without(&self, body: Incoming, head: &Parts, mut response: Response<OutBody>) -> Response<OutBody> {
        if unread::throw_away(head, body, self.site.gateway.timeouts.body) == After::Close {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The upstreams of the route that is for a request.
    fn route(&self, head: &Parts, client: IpAddr) -> Option<&Group> {
        if self.site.routes.is_empty() {
            return None;
        }
        let route = self.site.gateway.route(&HttpAttributes::of_head(head, Some(client)))?;
        self.site.routes.get(route)
    }

    /// Sends a request on, to the upstreams of its group or to where it is diverted to, and brings the answer.
    async fn pass_on(
        self: &Arc<Self>,
        mut head: Parts,
        body: Incoming,
        leave: Leave,
        group: Option<&Group>,
        mut visit: Visit,
    ) -> Response<OutBody> {
        let upgrade = head::upgrade(&head);
        // The client's side of the tunnel, if it comes to that.
        let asked = upgrade.is_some().then(|| head.extensions.remove::<OnUpgrade>()).flatten();
        let request = Onward { head: &head, facts: &self.facts, upgrade: upgrade.as_ref() };
        let (body, ending) = self.body(body, &leave);
        visit.body(ending.as_ref());
        let began = SystemClock.now();
        let sent = match (&leave, group) {
            (_, Some(group)) => self.site.upstreams.send(group, request, body).await,
            (Leave::Divert(diverted), None) => self.site.upstreams.send_to(diverted.to(), request, body).await,
            (Leave::Pass(_), None) => Err(Failure::Nowhere),
        };
        let Answer { response, from } = match sent {
            Ok(answer) => answer,
            Err(failure) => {
                let response = self.failed(&failure, ending.as_deref(), &mut visit);
                visit.status(response.status());
                return leave.answer_self(response, visit);
            }
        };
        visit.answered_by(&from, SystemClock.now().since(began));
        visit.outcome = if matches!(leave, Leave::Divert(_)) { Outcome::Diverted } else { Outcome::Forwarded };
        visit.status(response.status());
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return match asked {
                Some(client) => tunnel::open(Arc::clone(self), client, response, leave, visit),
                None => {
                    visit.outcome = Outcome::Failed;
                    own(
                        answers::problem(StatusCode::BAD_GATEWAY, "the service changed to what nobody asked for"),
                        visit,
                    )
                }
            };
        }
        leave.answer(response, visit)
    }

    /// The request's body on its way out, and how it ends.
    fn body(&self, body: Incoming, leave: &Leave) -> (ClientBody, Option<Arc<Ending>>) {
        if body.is_end_stream() {
            return (ClientBody::empty(), None);
        }
        let gateway = &self.site.gateway;
        let deadline = self.site.deadlines.add();
        let body = leave.request_body(body);
        let (body, ending) = ClientBody::new(body, deadline, gateway.timeouts.body, gateway.bounds.body);
        (body, Some(ending))
    }

    /// What is answered when no answer came. Often it is the client's own fault.
    fn failed(&self, failure: &Failure, ending: Option<&Ending>, visit: &mut Visit) -> Response<Full<Bytes>> {
        let Some(fault) = ending.and_then(Ending::fault) else {
            self.site.metrics.upstream_failed();
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

/// Whether a request fits what one may ask.
fn fits(site: &Site, head: &Parts) -> Result<(), Rejected> {
    // Of HTTP/1 more are not even read.
    if head.headers.len() > site.gateway.bounds.headers {
        return Err(Rejected {
            status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            why: "there are too many headers",
        });
    }
    let Some(most) = site.gateway.bounds.body else { return Ok(()) };
    let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(Rejected { status: StatusCode::PAYLOAD_TOO_LARGE, why: "the body is too long" });
    }
    Ok(())
}

/// An answer of the gateway's own to a request that passed.
fn answered(response: Response<Full<Bytes>>, leave: Leave, mut visit: Visit) -> Response<OutBody> {
    visit.outcome = Outcome::Answered;
    visit.status(response.status());
    leave.answer_self(response, visit)
}

/// An answer of the gateway's own, by which the request ends.
fn own(response: Response<Full<Bytes>>, mut visit: Visit) -> Response<OutBody> {
    visit.status(response.status());
    response.map(|body| OutBody::own(body, visit))
}

/// An answer to a request that goes no further.
fn rejected(response: Response<Full<Bytes>>, mut visit: Visit) -> Response<OutBody> {
    visit.outcome = Outcome::Rejected;
    own(response, visit)
}

/// After this answer nothing good can come on the connection. (Over HTTP/2, where only the stream ends, hyper leaves it out.)
fn closing(mut response: Response<Full<Bytes>>) -> Response<Full<Bytes>> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
