//! The step that all clients share: a call waits for its host's pause and its limit, and evaluates the response.

use super::RetryAfterLayer;
use super::parse;
use crate::client_limit::{self, ClientLimit, Overloaded};
use crate::client_messages::{RequestHost, ResponseMeta};
use diana::Retry;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// A call that waits until its host's pause is over, and for its permit if there is a limit. Then the call may be made;
/// pass its response to [`observe`](Self::observe).
pub(crate) struct PauseWait<R, L: ClientLimit<R>> {
    layer: RetryAfterLayer<L>,
    host: Arc<str>,
    since: Instant,
    /// Boxed, since few calls wait.
    sleep: Option<Pin<Box<Sleep>>>,
    permit: Option<client_limit::PermitWait<L::Permit>>,
}

impl<R: RequestHost, L: ClientLimit<R>> PauseWait<R, L> {
    pub(super) fn new(request: &R, layer: RetryAfterLayer<L>) -> Self {
        // Calls without a host are assumed to have the same target.
        let host = request.host().unwrap_or_default().into();
        Self { layer, host, since: Instant::now(), sleep: None, permit: None }
    }

    /// Returns the permit of the call. `request` must be the same in each poll.
    pub(crate) fn poll(
        &mut self,
        request: &R,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<L::Permit>, Overloaded>> {
        loop {
            if let Some(wait) = &mut self.permit {
                let acquired = ready!(Pin::new(wait).poll(context));
                self.permit = None;
                let permit = acquired?;
                // A pause may have started while it waited for its permit. Then it is queued again after the pause;
                // otherwise all granted calls would be sent together at its end.
                if self.pause().is_none() {
                    return Poll::Ready(Ok(Some(permit)));
                }
            }
            ready!(self.poll_pause(context))?;
            let Some(limit) = &self.layer.limit else { return Poll::Ready(Ok(None)) };
            self.permit = Some(limit.acquire(request));
        }
    }
}

impl<R, L: ClientLimit<R>> PauseWait<R, L> {
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Overloaded>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                ready!(sleep.as_mut().poll(context));
                self.sleep = None;
            }
            // Other calls may have extended the pause meanwhile.
            let Some(remaining) = self.pause() else { return Poll::Ready(Ok(())) };
            let max_wait = self.layer.max_wait;
            if self.since.elapsed().saturating_add(remaining) > max_wait {
                let (limit, retry) = (Arc::clone(&self.host), Retry::After(remaining));
                return Poll::Ready(Err(Overloaded { limit, max_wait, retry }));
            }
            self.sleep = Some(Box::pin(tokio::time::sleep(remaining)));
        }
    }

    /// Returns the remaining pause of the host.
    fn pause(&self) -> Option<Duration> {
        self.layer.pauses.remaining(&self.host, Instant::now())
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Pauses the host if its response asks for it. After a redirect both hosts are paused, since calls to the first
    /// reach the second.
    pub(crate) fn observe(&self, response: &impl ResponseMeta) {
        let Some(time) = parse::pause(response.status(), response.headers()) else { return };
        let now = Instant::now();
        self.layer.pauses.pause(&self.host, time, now);
        if let Some(other) = response.final_host().filter(|other| **other != *self.host) {
            self.layer.pauses.pause(&other, time, now);
        }
    }
}
