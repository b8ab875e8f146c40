//! Interim responses to HTTP/2 clients: the state that a client's stream and its request share while the request is at
//! an upstream.
//!
//! - Interim responses (1xx, RFC 9110, section 15.2) such as 103 Early Hints: the code that waits for the upstream's
//!   response adds them, and the stream's task sends them. Many HTTP/1 clients take the first response
//!   for the last, so interim responses to HTTP/1 requests are dropped.
//! - The read size: the stream's task knows how much the client accepts, and no more is read from the upstream at once.

use super::memory::CHUNK_SIZE;
use http::{Response, StatusCode};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

/// Connects a request with the HTTP/2 stream that it came on. Cloning is cheap; clones share their state.
#[derive(Clone, Debug)]
pub struct StreamHandle(Arc<SharedStream>);

#[derive(Debug)]
struct SharedStream {
    interim: Mutex<Interim>,
    read_size: AtomicUsize,
    /// Whether an interim response of an upstream was forwarded.
    has_forwarded: AtomicBool,
}

/// Interim responses that have not been sent yet.
#[derive(Debug, Default)]
struct Interim {
    responses: Vec<Response<()>>,
    /// The stream's task.
    waker: Option<Waker>,
}

impl StreamHandle {
    pub(crate) fn new() -> Self {
        let (interim, read_size) = (Mutex::default(), AtomicUsize::new(CHUNK_SIZE));
        Self(Arc::new(SharedStream { interim, read_size, has_forwarded: AtomicBool::new(false) }))
    }

    /// Forwards an interim response of an upstream. The caller bounds their number.
    pub fn forward(&self, response: Response<()>) {
        // The server sends `100 Continue` itself, and HTTP/2 has no upgrades.
        if !matches!(response.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            self.0.has_forwarded.store(true, Ordering::Relaxed);
            self.push(response);
        }
    }

    /// Returns `true` if an interim response of an upstream was forwarded.
    pub fn has_forwarded(&self) -> bool {
        self.0.has_forwarded.load(Ordering::Relaxed)
    }

    /// Sends `100 Continue`: the client should send the body.
    pub(crate) fn send_continue(&self) {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CONTINUE;
        self.push(response);
    }

    fn push(&self, response: Response<()>) {
        let mut interim = self.0.interim.lock();
        interim.responses.push(response);
        let waker = interim.waker.take();
        drop(interim);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the interim responses. The task is woken when there are more.
    pub(crate) fn take_interim(&self, context: &mut Context<'_>) -> Vec<Response<()>> {
        let mut interim = self.0.interim.lock();
        if !interim.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            interim.waker = Some(context.waker().clone());
        }
        std::mem::take(&mut interim.responses)
    }

    /// Returns how much of the response body may be read at once.
    pub fn read_size(&self) -> usize {
        self.0.read_size.load(Ordering::Relaxed)
    }

    pub(crate) fn set_read_size(&self, bytes: usize) {
        self.0.read_size.store(bytes, Ordering::Relaxed);
    }
}
