//! The file of the audit log, written by a thread of its own: neither a request nor a reload waits for a disk.

use super::AuditEntry;
use diana_metrics::DroppedLines;
use diana_net::LogFile;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// The maximum number of lines that wait for the disk.
const MAX_PENDING: usize = 1_024;

#[derive(Debug)]
pub(super) struct AuditFile {
    pub(super) path: PathBuf,
    messages: SyncSender<Message>,
    /// Lines that could not be written.
    pub(super) drops: DroppedLines,
}

enum Message {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

impl AuditFile {
    /// Starts the thread, which ends when this is dropped.
    pub(super) fn start(file: LogFile) -> io::Result<Self> {
        let (messages, received) = sync_channel(MAX_PENDING);
        let (path, drops) = (file.path().to_owned(), DroppedLines::default());
        let counted = drops.clone();
        std::thread::Builder::new().name("audit-log".to_owned()).spawn(move || write_all(file, &received, &counted))?;
        Ok(Self { path, messages, drops })
    }

    pub(super) fn write(&self, entry: &AuditEntry) {
        let line = serde_json::to_vec(entry).ok().map(|mut line| {
            line.push(b'\n');
            Message::Line(line)
        });
        if line.is_none_or(|line| self.messages.try_send(line).is_err()) {
            self.drops.add(1);
            tracing::warn!("a change is missing in the audit log {}: its disk is too slow", self.path.display());
        }
    }

    /// Waits until the lines so far are written.
    pub(super) fn flush(&self, timeout: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.messages.try_send(Message::Flush(done)).is_ok() {
            // An error means that the disk is too slow.
            let _ = is_done.recv_timeout(timeout);
        }
    }
}

fn write_all(mut file: LogFile, received: &Receiver<Message>, drops: &DroppedLines) {
    for message in received {
        match message {
            Message::Line(line) => {
                if let Err(error) = file.write_all(&line) {
                    drops.add(1);
                    tracing::warn!(%error, "a change is missing in the audit log {}", file.path().display());
                }
            }
            Message::Flush(done) => {
                let _ = file.flush();
                let _ = done.try_send(());
            }
        }
    }
}
