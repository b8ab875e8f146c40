//! Where a client's connection stands, and by when it must have moved on.
//!
//! ```text
//!            first byte            whole head             last byte of the answer
//!   idle ───────────────▶ header ─────────────▶ serving ──────────────────────────▶ idle
//!   `timeouts.idle`       `timeouts.header`     no time-out of its own, but while nothing can be written: `timeouts.body`
//! ```
//!
//! An HTTP/2 connection serves many requests at once, and is idle when it serves none; bytes that are no request (pings) do not
//! keep it. Its client may leave the socket free and still take nothing of one answer (it gives no window): each stream watches
//! that for itself.

use super::deadlines::Deadline;
use diana_rules::Timeouts;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Where a client's connection stands. Shared by its socket and its requests.
#[derive(Debug)]
pub(super) struct ConnTimeouts {
    deadline: Deadline,
    timeouts: Timeouts,
    /// How many requests it serves now.
    serving: AtomicU32,
    /// How many it has begun to serve.
    begun: AtomicU32,
    /// Whether bytes that come while nothing is served are the beginning of a request.
    is_header: AtomicBool,
    is_http2: AtomicBool,
    /// Whether the client does not take what it is sent.
    is_stuck: AtomicBool,
}

impl ConnTimeouts {
    /// A new connection, of which the first request must come as soon as the rest of a header would have to.
    pub(super) fn new(deadline: Deadline, timeouts: Timeouts) -> Self {
        deadline.set(timeouts.header);
        Self {
            deadline,
            timeouts,
            serving: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            is_header: AtomicBool::new(true),
            is_http2: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Bytes have come.
    pub(super) fn read(&self) {
        let is_idle = self.serving.load(Ordering::Relaxed) == 0 && !self.is_http2.load(Ordering::Relaxed);
        if is_idle && !self.is_header.load(Ordering::Relaxed) {
            self.is_header.store(true, Ordering::Relaxed);
            self.deadline.set(self.timeouts.header);
        }
    }

    /// The client takes nothing just now.
    pub(super) fn stuck(&self) {
        if !self.is_stuck.swap(true, Ordering::Relaxed) {
            self.deadline.set(self.timeouts.body);
        }
    }

    /// The client has taken something.
    pub(super) fn written(&self) {
        if self.is_stuck.load(Ordering::Relaxed) {
            self.is_stuck.store(false, Ordering::Relaxed);
            if self.serving.load(Ordering::Relaxed) == 0 {
                self.deadline.set(self.timeouts.idle);
            } else {
                self.deadline.clear();
            }
        }
    }

    /// A request is here.
    pub(super) fn begin(&self) {
        self.serving.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.is_header.store(false, Ordering::Relaxed);
        if !self.is_stuck.load(Ordering::Relaxed) {
            self.deadline.clear();
        }
    }

    /// How many requests it has begun to serve.
    pub(super) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// It speaks HTTP/2.
    pub(super) fn speaks_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
    }

    /// Whether it speaks HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// Whether it serves a request now.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed) > 0
    }

    /// The gateway is about to stop: whoever has a request on its way has so long to bring it.
    pub(super) fn last_call(&self, time: Duration) {
        self.deadline.set(time);
    }

    /// A request is done with.
    pub(super) fn end(&self) {
        if self.serving.fetch_sub(1, Ordering::Relaxed) == 1 && !self.is_stuck.load(Ordering::Relaxed) {
            self.deadline.set(self.timeouts.idle);
        }
    }

    /// When it must have moved on.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }
}
