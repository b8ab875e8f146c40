//! Interim responses (1xx) on their way from an upstream to an HTTP/2 client, such as 103 Early Hints (RFC 9110, section 15.2).
//!
//! The code that waits for an upstream's answer adds them, and the task of the client's stream sends them. hyper's HTTP/1 server has
//! no way to send one, so an HTTP/1 request carries none of these, and its interim responses are dropped.

use http::{Response, StatusCode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::task::{Context, Waker};

/// The interim responses to one request. Cloning is cheap; clones share their state.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Interim(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    responses: Vec<Response<()>>,
    /// The task of the stream.
    waker: Option<Waker>,
}

impl Interim {
    /// Adds one. The caller bounds how many there are.
    pub(in crate::gateway) fn push(&self, response: Response<()>) {
        // The gateway itself tells the client to go on, and an upgrade is no news.
        if matches!(response.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            return;
        }
        let mut waiting = self.0.lock();
        waiting.responses.push(response);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes what there is; the task is woken when there is more.
    pub(super) fn take(&self, context: &mut Context<'_>) -> Vec<Response<()>> {
        let mut waiting = self.0.lock();
        if !waiting.waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            waiting.waker = Some(context.waker().clone());
        }
        std::mem::take(&mut waiting.responses)
    }
}
