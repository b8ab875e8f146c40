//! The program's own log on standard error: what happened, warnings, errors. It never blocks a request or a shutdown.
//!
//! ```text
//!  any thread ──▶ level filter ──▶ limit on repeats ──▶ bounded buffer ──▶ log thread ──▶ standard error
//!                  DIANA_LOG         per call site          1 MiB
//! ```
//!
//! # What always holds (tests/it/program_log.rs)
//! - Logging never waits for the reader of the log. A line that does not fit into the buffer is dropped, and
//!   [counted](ProgramLog::drops).
//! - Each warning or error is logged at most [`BURST`] times in a row and then once a second, whatever clients send.
//!   Suppressed lines are counted and reported.
//! - Libraries log nothing unless `DIANA_LOG` names them: some of them log a warning for each frame of a client.

mod filter;
mod repeats;
mod writer;

pub use filter::{InvalidLogFilter, LogFilter};
pub use repeats::BURST;

use anstyle::{AnsiColor, Style};
use diana::{Clock, SystemClock};
use diana_metrics::DroppedLines;
use diana_net::LogTime;
use repeats::Repeats;
use serde_json::json;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;
use tracing::Dispatch;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use writer::{Handle, SharedLog};

const RED: Style = AnsiColor::Red.on_default().bold();

/// The format of the program's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramLogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The program's own log. Cloning is cheap; clones share their buffer.
///
/// ```
/// use diana_server::program_log::{ProgramLog, ProgramLogFormat};
/// use std::io::Write;
/// use std::time::Duration;
///
/// let log = ProgramLog::start(ProgramLogFormat::Text, std::io::sink())?;
/// (&log).write_all(b"one line\n")?;
/// assert!(log.flush(Duration::from_secs(60)));
/// assert_eq!(log.drops().count(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ProgramLog {
    format: ProgramLogFormat,
    has_colours: bool,
    repeats: Arc<Repeats>,
    handle: Arc<Handle>,
}

impl ProgramLog {
    /// Starts the thread that writes to `sink`.
    pub fn start(format: ProgramLogFormat, sink: impl Write + Send + 'static) -> io::Result<Self> {
        let repeats = Arc::new(Repeats::new().map_err(io::Error::other)?);
        let handle = Arc::new(SharedLog::start(Box::new(sink), Arc::clone(&repeats))?);
        Ok(Self { format, has_colours: false, repeats, handle })
    }

    /// Starts a log to standard error, with colours if it is a terminal and `NO_COLOR` is not set.
    pub fn stderr(format: ProgramLogFormat) -> io::Result<Self> {
        let wants_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let has_colours = format == ProgramLogFormat::Text && io::stderr().is_terminal() && wants_colours;
        Ok(Self { has_colours, ..Self::start(format, io::stderr())? })
    }

    /// Makes it the log of this process: for `tracing` events, and panics. Does nothing if the process has a log
    /// already.
    pub fn install(&self, filter: LogFilter) {
        if tracing::dispatcher::set_global_default(self.dispatch(filter)).is_ok() {
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
    }

    /// Returns a `tracing` dispatcher that writes to this log.
    pub fn dispatch(&self, filter: LogFilter) -> Dispatch {
        let all = tracing_subscriber::registry().with(filter.into_inner()).with(Arc::clone(&self.repeats).layer());
        match self.format {
            ProgramLogFormat::Text => {
                let layer = tracing_subscriber::fmt::layer().with_writer(self.clone()).with_target(false);
                Dispatch::new(all.with(layer.with_ansi(self.has_colours)))
            }
            ProgramLogFormat::Json => {
                let layer = tracing_subscriber::fmt::layer().with_writer(self.clone()).with_target(false);
                Dispatch::new(all.with(layer.json()))
            }
        }
    }

    /// Logs the error that ends the program, regardless of the log level.
    pub fn error(&self, error: &dyn fmt::Display) {
        let line = match self.format {
            ProgramLogFormat::Json => {
                let timestamp = format!("{}Z", LogTime::default().iso(SystemClock.now()));
                let message = error.to_string();
                format!("{}\n", json!({"timestamp": timestamp, "level": "ERROR", "fields": {"message": message}}))
            }
            ProgramLogFormat::Text if self.has_colours => format!("{RED}error:{RED:#} {error}\n"),
            ProgramLogFormat::Text => format!("error: {error}\n"),
        };
        self.handle.push(line.as_bytes());
    }

    /// Returns the format of the log.
    pub fn format(&self) -> ProgramLogFormat {
        self.format
    }

    /// Returns the number of dropped lines.
    pub fn drops(&self) -> DroppedLines {
        self.handle.drops()
    }

    /// Waits until all lines so far are written, at most `timeout`. Returns whether they are.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.handle.flush(timeout)
    }
}

impl Write for &ProgramLog {
    /// Accepts all of it, or drops all of it: a line is never cut.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.handle.push(line);
        Ok(line.len())
    }

    /// Does nothing: logging never waits for the reader; see [`ProgramLog::flush`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for ProgramLog {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}
