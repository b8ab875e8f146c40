//! Progress: a bar on a terminal, and a line per second elsewhere.

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// The progress output of an upload.
pub(crate) struct Progress {
    sent: u64,
    length: u64,
    output: Output,
}

enum Output {
    Bar(ProgressBar),
    Lines { out: Box<dyn Write>, began: Instant, last: Instant },
}

impl Progress {
    /// A bar on stderr.
    pub(crate) fn bar() -> Self {
        Self { sent: 0, length: 0, output: Output::Bar(ProgressBar::hidden()) }
    }

    /// A line per second, for logs.
    pub(crate) fn lines(out: impl Write + 'static) -> Self {
        let now = Instant::now();
        Self { sent: 0, length: 0, output: Output::Lines { out: Box::new(out), began: now, last: now } }
    }

    /// Starts an upload of `length` bytes; `description` is printed first.
    pub(crate) fn begin(&mut self, length: u64, description: &str) {
        self.length = length;
        match &mut self.output {
            Output::Bar(bar) => {
                eprintln!("{description}");
                let style = ProgressStyle::with_template(
                    "{wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
                );
                *bar = ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            Output::Lines { out, began, last } => {
                (*began, *last) = (Instant::now(), Instant::now());
                // A failed write of progress is not an error.
                let _ = writeln!(out, "{description}");
            }
        }
    }

    /// Adds sent bytes.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.sent += u64::try_from(bytes).unwrap_or(0);
        match &mut self.output {
            Output::Bar(bar) => bar.set_position(self.sent),
            Output::Lines { out, began, last } => {
                let now = Instant::now();
                if now - *last < Duration::from_secs(1) && self.sent < self.length {
                    return;
                }
                *last = now;
                let _ = writeln!(
                    out,
                    "{:>4} %  {} of {}  {:.1} s",
                    self.sent.saturating_mul(100) / self.length.max(1),
                    size(self.sent),
                    size(self.length),
                    (now - *began).as_secs_f64()
                );
            }
        }
    }

    /// Ends the output.
    pub(crate) fn end(&mut self) {
        if let Output::Bar(bar) = &self.output {
            bar.abandon();
        }
    }

    /// Returns the number of sent bytes.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

/// Formats a number of bytes.
pub(crate) fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}
