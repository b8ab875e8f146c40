//! The thread that writes the program's log.

use super::repeats::{Repeats, Suppressed};
use diana::{Clock, SystemClock, Timestamp};
use diana_metrics::DroppedLines;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of bytes that wait to be written.
const MAX_BUFFER: usize = 1 << 20;
/// The memory that an empty buffer keeps, in bytes.
const IDLE_CAPACITY: usize = 16 << 10;
/// The minimum time between two reports of suppressed lines.
const REPORT: Duration = Duration::from_secs(10);

/// The state shared by the handles and the thread.
#[derive(Debug, Default)]
pub(super) struct SharedLog {
    state: Mutex<LogState>,
    changed: Condvar,
    drops: DroppedLines,
}

#[derive(Debug, Default)]
struct LogState {
    bytes: Vec<u8>,
    lines: u64,
    /// Lines dropped since the last report.
    dropped: u64,
    /// Whether the thread is writing lines that it has taken out.
    is_writing: bool,
    /// Whether the last handle is dropped.
    is_over: bool,
}

/// A handle of the log. When it is dropped, the thread writes the remaining lines, and ends.
#[derive(Debug)]
pub(super) struct Handle(Arc<SharedLog>);

impl SharedLog {
    pub(super) fn start(sink: Box<dyn Write + Send>, repeats: Arc<Repeats>) -> io::Result<Handle> {
        let shared = Arc::new(Self::default());
        let writer =
            Writer { shared: Arc::clone(&shared), sink, repeats, taken: Vec::new(), reported: SystemClock.now() };
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writer.run())?;
        Ok(Handle(shared))
    }
}

impl Handle {
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.state.lock();
        if state.bytes.len() + line.len() > MAX_BUFFER {
            state.dropped += 1;
            drop(state);
            self.0.drops.add(1);
            return;
        }
        state.bytes.extend_from_slice(line);
        state.lines += 1;
        drop(state);
        self.0.changed.notify_all();
    }

    pub(super) fn drops(&self) -> DroppedLines {
        self.0.drops.clone()
    }

    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let mut state = self.0.state.lock();
        let is_busy = |state: &mut LogState| state.is_writing || !state.bytes.is_empty();
        !self.0.changed.wait_while_for(&mut state, is_busy, timeout).timed_out()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

struct Writer {
    shared: Arc<SharedLog>,
    sink: Box<dyn Write + Send>,
    repeats: Arc<Repeats>,
    taken: Vec<u8>,
    /// The time of the last report of suppressed lines.
    reported: Timestamp,
}

impl Writer {
    fn run(mut self) {
        loop {
            let lines = {
                let mut state = self.shared.state.lock();
                let is_idle = |state: &mut LogState| state.bytes.is_empty() && !state.is_over;
                self.shared.changed.wait_while_for(&mut state, is_idle, REPORT);
                if state.bytes.is_empty() && state.is_over {
                    return;
                }
                std::mem::swap(&mut state.bytes, &mut self.taken);
                state.is_writing = !self.taken.is_empty();
                std::mem::take(&mut state.lines)
            };
            self.write(lines);
            self.report();
        }
    }

    fn write(&mut self, lines: u64) {
        if lines == 0 {
            return;
        }
        let written = self.sink.write_all(&self.taken).and_then(|()| self.sink.flush());
        self.taken.clear();
        // Releases the memory of a burst.
        self.taken.shrink_to(IDLE_CAPACITY);
        let dropped = {
            let mut state = self.shared.state.lock();
            state.is_writing = false;
            // Without a reader, nothing can be reported.
            if written.is_ok() { std::mem::take(&mut state.dropped) } else { 0 }
        };
        if written.is_err() {
            self.shared.drops.add(lines);
        }
        if dropped > 0 {
            tracing::warn!(lines = dropped, "log lines were dropped: standard error was not read quickly enough");
        }
        self.shared.changed.notify_all();
    }

    /// Reports suppressed lines, at most once per `REPORT`.
    fn report(&mut self) {
        let now = SystemClock.now();
        if now.since(self.reported) < REPORT {
            return;
        }
        self.reported = now;
        for Suppressed { lines, metadata } in self.repeats.take_suppressed() {
            let (file, line) = (metadata.file().unwrap_or_default(), metadata.line().unwrap_or_default());
            tracing::info!(lines, like = format_args!("{file}:{line}"), "log lines suppressed: they repeat too often");
        }
    }
}
