//! The check of a request: its future, including the wait that the rules require, and its result.

use crate::attributes::HttpAttributes;
use crate::denial::{Denial, ResponseFormat};
use crate::permit::RequestPermit;
use crate::rate_limit_filter::Inner;
use diana::{AcquireFuture, LoggedRequest, Permit, Verdict};
use http::request::Parts;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Returns the verdict of a check.
pub fn verdict(checked: &Result<RequestPermit, Denial>) -> &Verdict {
    match checked {
        Ok(permit) => permit.verdict(),
        Err(denial) => denial.verdict(),
    }
}

/// Logs a denial, a delay, or a denial by a shadow rule, if it is to be logged. `head` is the request's, and `service` the name
/// of the front end.
#[inline]
pub fn log(checked: &Result<RequestPermit, Denial>, head: &Parts, client: Option<IpAddr>, service: &'static str) {
    let verdict = verdict(checked);
    if verdict.has_log_entries() {
        let (method, path) = (Some(head.method.as_str()), Some(head.uri.path()));
        verdict.log(&LoggedRequest { service, client, method, path });
    }
}

/// The future of a check, including the wait that the rules require. Dropping it refunds everything.
#[must_use = "nothing is decided until it is awaited"]
pub struct CheckFuture(State);

enum State {
    /// Most requests are decided immediately. It is `None` once it is returned.
    Ready(Option<Result<RequestPermit, Denial>>),
    /// Querying the shared store, queued, or waiting for a reserved time.
    Waiting(Box<PendingCheck>),
}

struct PendingCheck {
    acquire: AcquireFuture,
    filter: Arc<Inner>,
    format: ResponseFormat,
}

impl CheckFuture {
    pub(crate) fn start(filter: &Arc<Inner>, request: &HttpAttributes<'_>) -> Self {
        match filter.engine.acquire(request).now() {
            Ok(acquired) => Self(State::Ready(Some(result(acquired, filter, || ResponseFormat::of(request))))),
            Err(acquire) => {
                let (filter, format) = (Arc::clone(filter), ResponseFormat::of(request));
                Self(State::Waiting(Box::new(PendingCheck { acquire, filter, format })))
            }
        }
    }
}

/// Returns the permit or the denial of a request.
fn result(
    acquired: Result<Permit, diana::Denial>,
    filter: &Inner,
    format: impl FnOnce() -> ResponseFormat,
) -> Result<RequestPermit, Denial> {
    let headers = filter.options.http.rate_limit_headers;
    match acquired {
        Ok(permit) => Ok(RequestPermit::new(permit, &filter.engine, headers)),
        Err(denial) => Err(Denial { denial, headers, format: format() }),
    }
}

impl Future for CheckFuture {
    type Output = Result<RequestPermit, Denial>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<RequestPermit, Denial>> {
        let state = &mut self.get_mut().0;
        match state {
            // Polled after completion, it is pending.
            State::Ready(result) => result.take().map_or(Poll::Pending, Poll::Ready),
            State::Waiting(waiting) => {
                let acquired = ready!(Pin::new(&mut waiting.acquire).poll(context));
                let result = result(acquired, &waiting.filter, || waiting.format);
                *state = State::Ready(None);
                Poll::Ready(result)
            }
        }
    }
}

impl fmt::Debug for CheckFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").field("is_ready", &matches!(self.0, State::Ready(_))).finish()
    }
}
