//! The thread that writes the access log.

use super::{DRAIN_TIMEOUT, FLUSH_SIZE};
use crate::LogTime;
use diana_metrics::DroppedLines;
use parking_lot::{Condvar, Mutex};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The time that the writer waits for more lines after the first.
const PAUSE: Duration = Duration::from_millis(50);

/// The lines of one worker that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: u64,
    pub(super) date: LogTime,
}

/// The state shared by the handles and the thread.
#[derive(Debug, Default)]
pub(super) struct SharedLog {
    state: Mutex<LogState>,
    changed: Condvar,
    pub(super) drops: DroppedLines,
}

#[derive(Debug, Default)]
struct LogState {
    /// One for each handle; buffers of dropped handles are removed once they are written.
    buffers: Vec<Arc<Mutex<Buffer>>>,
    handles: usize,
    has_lines: bool,
    is_over: bool,
}

impl SharedLog {
    /// Starts the thread, with the buffer of the first handle.
    pub(super) fn start(sink: Box<dyn Write + Send>) -> io::Result<(Arc<Self>, Arc<Mutex<Buffer>>)> {
        let shared = Arc::new(Self::default());
        // Created before the thread, which ends when there is no handle.
        let first = shared.new_buffer();
        let writer = Writer { shared: Arc::clone(&shared), sink, has_warned: false, lines: Vec::new() };
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run())?;
        Ok((shared, first))
    }

    pub(super) fn new_buffer(&self) -> Arc<Mutex<Buffer>> {
        let buffer = Arc::<Mutex<Buffer>>::default();
        let mut state = self.state.lock();
        state.handles += 1;
        state.buffers.push(Arc::clone(&buffer));
        buffer
    }

    pub(super) fn wake(&self) {
        self.state.lock().has_lines = true;
        self.changed.notify_all();
    }

    /// Drops a handle. The last one waits for the last lines, with a timeout: the log may have no reader.
    pub(super) fn release(&self) {
        let mut state = self.state.lock();
        state.handles -= 1;
        if state.handles > 0 {
            return;
        }
        self.changed.notify_all();
        self.changed.wait_while_for(&mut state, |state| !state.is_over, DRAIN_TIMEOUT);
    }
}

struct Writer {
    shared: Arc<SharedLog>,
    sink: Box<dyn Write + Send>,
    /// Whether a write error was logged.
    has_warned: bool,
    /// The buffer that is being written.
    lines: Vec<u8>,
}

impl Writer {
    fn run(mut self) {
        loop {
            let (buffers, is_last) = self.wait();
            for buffer in buffers {
                self.write(&buffer);
            }
            if let Err(error) = self.sink.flush() {
                self.warn(&error);
            }
            if is_last {
                break;
            }
        }
        self.shared.state.lock().is_over = true;
        self.shared.changed.notify_all();
    }

    /// Waits for lines, and up to `PAUSE` for more. Also returns whether all handles are dropped.
    fn wait(&self) -> (Vec<Arc<Mutex<Buffer>>>, bool) {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| !state.has_lines && state.handles > 0);
        state.has_lines = false;
        self.shared.changed.wait_while_for(
            &mut state,
            |state| state.handles > 0 && !(state.has_lines && state.has_enough()),
            PAUSE,
        );
        state.has_lines = false;
        let buffers = state.buffers.clone();
        // A buffer with only these two references has lost its handle, and gets no more lines.
        state.buffers.retain(|buffer| Arc::strong_count(buffer) > 2);
        (buffers, state.handles == 0)
    }

    fn write(&mut self, buffer: &Mutex<Buffer>) {
        let count = {
            let mut buffer = buffer.lock();
            std::mem::swap(&mut buffer.bytes, &mut self.lines);
            std::mem::take(&mut buffer.lines)
        };
        if let Err(error) = self.sink.write_all(&self.lines) {
            self.shared.drops.add(count);
            self.warn(&error);
        }
        self.lines.clear();
        // Releases the memory of a burst.
        self.lines.shrink_to(FLUSH_SIZE);
    }

    fn warn(&mut self, error: &io::Error) {
        if !self.has_warned {
            self.has_warned = true;
            tracing::warn!(%error, "cannot write the access log: its lines are dropped, and counted");
        }
    }
}

impl LogState {
    fn has_enough(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.lock().bytes.len() >= FLUSH_SIZE)
    }
}
