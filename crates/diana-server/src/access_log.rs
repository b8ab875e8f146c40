//! A line for each request, written by a thread of its own.
//!
//! ```text
//!  worker 0 ──▶ buffer 0 ─┐
//!  worker 1 ──▶ buffer 1 ─┼──▶ the writer's thread ──▶ standard output
//!  worker n ──▶ buffer n ─┘     takes whole buffers
//! ```
//!
//! A worker writes its line into a buffer that only it and the writer's thread touch. The writer is woken by the first line
//! of a buffer, waits a moment for more, takes the buffer away and leaves an empty one: a line costs no system call, no memory
//! and no wait.
//!
//! # What always holds (tests/it/access_log.rs)
//! - Logging never waits for whoever reads the log. What has no room is dropped, and [counted](Drops).
//! - A line stays one line, whatever clients send.
//! - What was logged is written before the last handle is gone, if it can be within [a time](LAST_WORDS).

mod entry;
mod escape;
mod writer;

pub use entry::{Entry, LogFormat};

use crate::log_time::LogTime;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use writer::{Buffer, Shared};

/// The most bytes of lines that wait in one buffer.
const MOST: usize = 1 << 20;
/// A buffer that is so full is taken at once.
const ENOUGH: usize = MOST / 4;
/// How long the last handle waits for the last lines to be written.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Where requests are logged. Each worker has a clone, which is a buffer of its own.
///
/// ```
/// use diana_server::access_log::{AccessLog, Entry, LogFormat};
///
/// let log = AccessLog::start(LogFormat::Text, std::io::sink())?;
/// log.log(&Entry { method: "GET", target: "/search", status: 200, ..Entry::default() });
/// assert_eq!(log.drops().count(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    buffer: Arc<Mutex<Buffer>>,
    shared: Arc<Shared>,
}

/// How many lines were dropped, as the metrics show it.
#[derive(Clone, Debug, Default)]
pub struct Drops(Arc<AtomicU64>);

impl Drops {
    /// How many lines were dropped: nobody read them quickly enough, or at all.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, lines: u64) {
        self.0.fetch_add(lines, Ordering::Relaxed);
    }
}

impl AccessLog {
    /// Starts the thread that writes to `sink`.
    pub fn start(format: LogFormat, sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (shared, buffer) = Shared::start(Box::new(sink))?;
        Ok(Self { format, buffer, shared })
    }

    /// Logs a request. Never waits: what has no room is dropped, and counted.
    pub fn log(&self, entry: &Entry<'_>) {
        let mut buffer = self.buffer.lock();
        let before = buffer.bytes.len();
        if before >= MOST {
            drop(buffer);
            self.shared.drops.add(1);
            return;
        }
        let Buffer { bytes, date, lines } = &mut *buffer;
        let date: &mut LogTime = date;
        entry.write(self.format, date, bytes);
        *lines += 1;
        let after = bytes.len();
        drop(buffer);
        // The writer sleeps until a buffer has something, and hurries when one has much.
        if before == 0 || (before < ENOUGH && after >= ENOUGH) {
            self.shared.wake();
        }
    }

    /// How many lines were dropped.
    pub fn drops(&self) -> Drops {
        self.shared.drops.clone()
    }
}

impl Clone for AccessLog {
    /// Another handle, with a buffer of its own.
    fn clone(&self) -> Self {
        let buffer = self.shared.new_buffer();
        Self { format: self.format, buffer, shared: Arc::clone(&self.shared) }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.leave();
    }
}
