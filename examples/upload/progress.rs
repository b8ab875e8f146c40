//! How far it is: a bar on a terminal, and a line a second elsewhere.

use indicatif::{BinaryBytes, ProgressBar, ProgressStyle};
use std::io::Write;
use std::time::Duration;
use tokio::time::Instant;

/// What is told while an upload goes on.
pub(crate) struct Progress {
    sent: u64,
    length: u64,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    WaitQueues { out: Box<dyn Write>, began: Instant, last: Instant },
}

impl Progress {
    /// A bar on stderr.
    pub(crate) fn bar() -> Self {
        Self { sent: 0, length: 0, shown: Shown::Bar(ProgressBar::hidden()) }
    }

    /// A line a second, for logs.
    pub(crate) fn lines(out: impl Write + 'static) -> Self {
        let now = Instant::now();
        Self { sent: 0, length: 0, shown: Shown::WaitQueues { out: Box::new(out), began: now, last: now } }
    }

    /// `length` bytes are about to go; `about` says where to.
    pub(crate) fn begin(&mut self, length: u64, about: &str) {
        self.length = length;
        match &mut self.shown {
            Shown::Bar(bar) => {
                eprintln!("{about}");
                let style = ProgressStyle::with_template(
                    "{wide_bar} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
                );
                *bar = ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            }
            Shown::WaitQueues { out, began, last } => {
                (*began, *last) = (Instant::now(), Instant::now());
                // Nobody is worse off if a line of progress can't be written.
                let _ = writeln!(out, "{about}");
            }
        }
    }

    /// So many more are gone.
    pub(crate) fn moved(&mut self, bytes: usize) {
        self.sent += u64::try_from(bytes).unwrap_or(0);
        match &mut self.shown {
            Shown::Bar(bar) => bar.set_position(self.sent),
            Shown::WaitQueues { out, began, last } => {
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

    /// There is nothing more to tell.
    pub(crate) fn end(&mut self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.abandon();
        }
    }

    /// How much is gone.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }
}

/// Bytes, as they are read.
pub(crate) fn size(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}
