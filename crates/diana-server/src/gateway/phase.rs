//! Where a client's connection stands, and by when it must have moved on.
//!
//! ```text
//!            first byte            whole head             last byte of the answer
//!   idle ───────────────▶ header ─────────────▶ serving ──────────────────────────▶ idle
//!   `timeouts.idle`       `timeouts.header`     no time-out of its own, but while nothing can be written: `timeouts.body`
//! ```
//!
//! An HTTP/2 connection serves many requests at once, and is idle when it serves none; bytes that are no request (pings) do not
//! keep it. Its client may leave the socket free and still take nothing of one answer (it gives no window), so there each
//! answer that nobody asks more of is watched, too.

use super::deadlines::Deadline;
use diana_rules::Timeouts;
use parking_lot::Mutex;
use slab::Slab;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Where a client's connection stands. Shared by its socket and its requests.
#[derive(Debug)]
pub(super) struct Phase {
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
    /// When those answers over HTTP/2 are due of which the next piece has not been asked for, in milliseconds.
    untaken: Mutex<Slab<u64>>,
}

impl Phase {
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
            untaken: Mutex::default(),
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
                self.go_on();
            }
        }
    }

    /// A request is here.
    pub(super) fn begin(&self, version: http::Version) {
        self.serving.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.is_header.store(false, Ordering::Relaxed);
        if version == http::Version::HTTP_2 {
            self.is_http2.store(true, Ordering::Relaxed);
        }
        if !self.is_stuck.load(Ordering::Relaxed) {
            self.go_on();
        }
    }

    /// While it serves, it must move on when the first of the answers is due that nobody takes.
    fn go_on(&self) {
        let is_http2 = self.is_http2.load(Ordering::Relaxed);
        let first = if is_http2 { self.untaken.lock().iter().map(|(_, due)| *due).min() } else { None };
        match first {
            Some(due) => self.deadline.set_time(due),
            None => self.deadline.clear(),
        }
    }

    /// How many requests it has begun to serve.
    pub(super) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
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

    /// A piece of an answer over HTTP/2 is ready to be sent, and the next one has not been asked for yet.
    pub(super) fn handed_out(&self) -> usize {
        let due = self.deadline.time(self.timeouts.body);
        let place = self.untaken.lock().insert(due);
        if !self.deadline.is_set() {
            self.deadline.set(self.timeouts.body);
        }
        place
    }

    /// The next piece was asked for, or the answer is over.
    pub(super) fn taken(&self, place: usize) {
        self.untaken.lock().try_remove(place);
    }

    /// Whether it is late. An answer that was late in coming may have gone out meanwhile: then there is more time.
    pub(super) fn is_late(&self) -> bool {
        if self.serving.load(Ordering::Relaxed) == 0 || self.is_stuck.load(Ordering::Relaxed) {
            return self.deadline.is_due();
        }
        self.go_on();
        self.deadline.is_due()
    }

    /// When it must have moved on.
    pub(super) fn deadline(&self) -> &Deadline {
        &self.deadline
    }
}
