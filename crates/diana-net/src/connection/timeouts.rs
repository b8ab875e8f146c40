//! The state of a client's connection, and the timeout of each state.
//!
//! ```text
//!            first byte            whole head              last byte of the response
//!   idle ───────────────▶ header ─────────────▶ serving ────────────────────────────▶ idle
//!   `timeouts.idle`       `timeouts.header`     no timeout; while writes are blocked: `timeouts.body`
//! ```
//!
//! An HTTP/2 connection serves many requests at once, and is idle when it serves none; bytes that are not part of a
//! request (PING) do not extend its timeout. Its client may read from the socket and still accept no data of one
//! response (by granting no flow-control window): each stream has its own timeout for that.

use crate::ServerSettings;
use crate::coarse_timer::Deadline;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The time that an idle client connection stays open at shutdown: a request may already be in transit.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// The state of a client's connection. Its socket and its requests share it.
#[derive(Debug)]
pub(crate) struct ConnTimeouts {
    deadline: Deadline,
    settings: Arc<ServerSettings>,
    /// The number of requests in flight.
    in_flight: AtomicU32,
    /// The number of requests started so far.
    started: AtomicU32,
    /// Whether a request head is being read.
    is_header: AtomicBool,
    is_http2: AtomicBool,
    /// Whether the client does not read the data that it is sent.
    is_write_blocked: AtomicBool,
}

impl ConnTimeouts {
    /// Creates the state of a new connection: `timeouts.header` applies from the start.
    pub(crate) fn new(deadline: Deadline, settings: Arc<ServerSettings>) -> Self {
        deadline.set(settings.timeouts.header);
        Self {
            deadline,
            settings,
            in_flight: AtomicU32::new(0),
            started: AtomicU32::new(0),
            is_header: AtomicBool::new(true),
            is_http2: AtomicBool::new(false),
            is_write_blocked: AtomicBool::new(false),
        }
    }

    /// Records that bytes were read.
    pub(crate) fn read(&self) {
        let is_idle = self.in_flight.load(Ordering::Relaxed) == 0 && !self.is_http2.load(Ordering::Relaxed);
        if is_idle && !self.is_header.load(Ordering::Relaxed) {
            self.is_header.store(true, Ordering::Relaxed);
            self.deadline.set(self.settings.timeouts.header);
        }
    }

    /// Records that a write is blocked: the client does not read.
    pub(crate) fn write_blocked(&self) {
        if !self.is_write_blocked.swap(true, Ordering::Relaxed) {
            self.deadline.set(self.settings.timeouts.body);
        }
    }

    /// Records that the client accepted bytes.
    pub(crate) fn wrote(&self) {
        if self.is_write_blocked.load(Ordering::Relaxed) {
            self.is_write_blocked.store(false, Ordering::Relaxed);
            if self.in_flight.load(Ordering::Relaxed) == 0 {
                self.deadline.set(self.idle_timeout());
            } else {
                self.deadline.clear();
            }
        }
    }

    /// Records that a request has started.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.started.fetch_add(1, Ordering::Relaxed);
        self.is_header.store(false, Ordering::Relaxed);
        if !self.is_write_blocked.load(Ordering::Relaxed) {
            self.deadline.clear();
        }
    }

    /// Returns the number of requests started so far.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }

    /// Marks the connection as HTTP/2.
    pub(crate) fn set_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the connection uses HTTP/2.
    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// Returns `true` if a request is in flight.
    pub(crate) fn is_serving(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Limits, at shutdown, how long the connection waits for a request in transit.
    pub(crate) fn set_shutdown_deadline(&self, time: Duration) {
        self.deadline.set(time);
    }

    /// Records that a request has finished.
    pub(crate) fn end(&self) {
        if self.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 && !self.is_write_blocked.load(Ordering::Relaxed) {
            self.deadline.set(self.settings.timeouts.idle);
        }
    }

    /// Records that the rest of an answered request has been received: what comes next is another request.
    pub(crate) fn drained(&self) {
        if self.in_flight.load(Ordering::Relaxed) == 0 && self.is_header.swap(false, Ordering::Relaxed) {
            self.deadline.set(self.idle_timeout());
        }
    }

    /// Returns how long the connection may be idle; at shutdown, how long it waits for a request in transit.
    fn idle_timeout(&self) -> Duration {
        if self.deadline.deadlines().is_stopping() { SHUTDOWN_GRACE } else { self.settings.timeouts.idle }
    }

    /// Returns the deadline of the current state.
    pub(crate) fn deadline(&self) -> &Deadline {
        &self.deadline
    }
}
