//! The local file, watched.
//!
//! Programs save a file by truncating it first, by replacing it, or by swapping a symlink to its folder; a file system
//! may report that late or not at all (NFS). So the kind of event is ignored: any event, or two seconds without one,
//! triggers a read; new content is accepted once two reads 150 ms apart are equal; and a file that is empty or missing
//! gets more time, since saves usually begin like that.

use super::coordinator::{Coordinator, SourceDocument};
use super::file_events::Watch;
use super::handle::PollNow;
use super::status::{ErrorKind, Origin};
use diana_rules::Document;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// The time between two reads of a file that is changing.
const REREAD_INTERVAL: Duration = Duration::from_millis(150);

/// The maximum number of reads of a file that keeps changing: three seconds.
const MAX_READS: usize = 20;

/// The number of equal reads after which a file counts as empty or missing: 600 ms.
const EMPTY_READS: usize = 5;

/// The poll interval without events.
const POLL: Duration = Duration::from_secs(2);

/// A file that may change.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
}

/// The result of a read: the text, or an error.
type Content = Result<String, String>;

/// A content with its modification time, since a file that is rewritten constantly can have the same content each time.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    content: Content,
    modified: Option<SystemTime>,
}

impl LocalFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file at startup: at once, unless it is just being written.
    pub(super) async fn read_first(&self) -> Result<SourceDocument, String> {
        let content = self.read().await.content;
        let content = if content.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            self.stable_content(None).await
        } else {
            content
        };
        content.map(|text| self.document(text))
    }

    /// Sends every change to the coordinator; never returns.
    pub(super) async fn run(self, coordinator: Arc<Coordinator>, mut polls: mpsc::Receiver<PollNow>) {
        let watch = Arc::new(Watch::new());
        let mut known: Option<Content> = None;
        let mut requested: Option<PollNow> = None;
        loop {
            let (watcher, path) = (Arc::clone(&watch), self.path.clone());
            // File access may block. An error means that the runtime is shutting down.
            let _ = tokio::task::spawn_blocking(move || watcher.update(&path)).await;
            let content = self.stable_content(known.as_ref()).await;
            if requested.is_some() || known.as_ref() != Some(&content) {
                match &content {
                    Ok(text) => {
                        coordinator.status_log().resolved(Origin::Local, ErrorKind::Source);
                        coordinator.offer(self.document(text.clone()));
                    }
                    Err(what) => {
                        coordinator.status_log().error(Origin::Local, ErrorKind::Source, what);
                    }
                }
                known = Some(content);
            }
            if let Some(poll) = requested.take() {
                // The receiver may be dropped.
                let _ = poll.send(());
            }
            tokio::select! {
                Some(poll) = polls.recv() => requested = Some(poll),
                () = watch.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Returns the content once it is stable; at once if it equals `known`.
    async fn stable_content(&self, known: Option<&Content>) -> Content {
        let mut last = self.read().await;
        let mut equal_reads = 1;
        for _ in 0..MAX_READS {
            let is_empty = last.content.as_ref().map_or(true, |text| text.trim().is_empty());
            if known == Some(&last.content) || equal_reads >= if is_empty { EMPTY_READS } else { 2 } {
                return last.content;
            }
            tokio::time::sleep(REREAD_INTERVAL).await;
            let next = self.read().await;
            equal_reads = if next == last { equal_reads + 1 } else { 1 };
            last = next;
        }
        // A partly written document may be valid, with only some of its rules.
        Err(format!("{}: changes constantly; it will be read once it is stable", self.path.display()))
    }

    async fn read(&self) -> Snapshot {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || {
            // Read before the content: a change in between is found by the next read.
            let modified = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
            Snapshot { content: read_capped(&path, 0), modified }
        });
        let canceled = |_| Snapshot { content: Err("read canceled".to_owned()), modified: None };
        let Snapshot { content, modified } = reading.await.unwrap_or_else(canceled);
        Snapshot { content: content.map_err(|what| format!("{}: {what}", self.path.display())), modified }
    }

    fn document(&self, text: String) -> SourceDocument {
        SourceDocument::hashed(Origin::Local, Document::new(self.path.display().to_string(), text))
    }
}

/// Reads a text file of at most a document's size plus `extra` bytes.
pub(super) fn read_capped(path: &Path, extra: usize) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("can't be read: {error}");
    // Reading a pipe would block.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let max = Document::MAX_SIZE + extra;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(max as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() > max {
        return Err(too_large());
    }
    text(bytes)
}

/// Decodes the text of a document.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("invalid UTF-8 at byte {}", error.utf8_error().valid_up_to()))
}

/// Returns the error for a document that is too large.
pub(super) fn too_large() -> String {
    format!("too large: more than {} bytes", Document::MAX_SIZE)
}
