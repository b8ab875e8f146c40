//! The access log: a line for each request, written by a separate thread.
//!
//! ```text
//!  worker 0 ──▶ buffer 0 ─┐
//!  worker 1 ──▶ buffer 1 ─┼──▶ the writer's thread ──▶ standard output, or a file
//!  worker n ──▶ buffer n ─┘     takes whole buffers
//! ```
//!
//! A worker writes its line into a buffer that only it and the writer thread touch. The first line of a buffer wakes
//! the writer, which waits briefly for more and swaps the buffer for an empty one: a line costs no system call, no
//! allocation and no wait.
//!
//! # What always holds (tests/it/access_log.rs)
//! - Logging never waits for the reader of the log. Lines that do not fit into the buffer are dropped, and
//!   [counted](DroppedLines).
//! - A line stays one line, whatever clients send.
//! - All lines are written before the last handle is dropped, unless that takes longer than [a timeout](DRAIN_TIMEOUT).

mod entry;
mod escape;
mod writer;

pub use entry::{LimitedBy, LogEntry, LogFormat};

use crate::LogTime;
use diana_metrics::DroppedLines;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use writer::{Buffer, SharedLog};

/// The maximum number of bytes in one buffer.
const MAX_BUFFER: usize = 1 << 20;
/// A buffer with this many bytes is written at once.
const FLUSH_SIZE: usize = MAX_BUFFER / 4;
/// The time that the last handle waits for the last lines to be written.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The access log. Each worker has a clone with its own buffer.
///
/// ```
/// use diana_net::access_log::{AccessLog, LogEntry, LogFormat};
///
/// let log = AccessLog::start(LogFormat::Text, std::io::sink())?;
/// log.log(&LogEntry { method: "GET", target: "/search", status: 200, ..LogEntry::default() });
/// assert_eq!(log.drops().count(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    buffer: Arc<Mutex<Buffer>>,
    shared: Arc<SharedLog>,
}

impl AccessLog {
    /// Starts the thread that writes to `sink`.
    pub fn start(format: LogFormat, sink: impl Write + Send + 'static) -> io::Result<Self> {
        let (shared, buffer) = SharedLog::start(Box::new(sink))?;
        Ok(Self { format, buffer, shared })
    }

    /// Logs a request. Never waits: a line that does not fit is dropped, and counted.
    pub fn log(&self, entry: &LogEntry<'_>) {
        let mut buffer = self.buffer.lock();
        let before = buffer.bytes.len();
        if before >= MAX_BUFFER {
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
        // Wakes the writer for the first line, and again when the buffer is due.
        if before == 0 || (before < FLUSH_SIZE && after >= FLUSH_SIZE) {
            self.shared.wake();
        }
    }

    /// Returns the number of dropped lines.
    pub fn drops(&self) -> DroppedLines {
        self.shared.drops.clone()
    }
}

impl Clone for AccessLog {
    /// Creates another handle, with its own buffer.
    fn clone(&self) -> Self {
        let buffer = self.shared.new_buffer();
        Self { format: self.format, buffer, shared: Arc::clone(&self.shared) }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.shared.release();
    }
}
