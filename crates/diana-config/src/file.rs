//! The local file, watched.
//!
//! Programs save a file by truncating it first, by replacing it, or by swapping a symlink to its folder; a file system
//! may report that late or not at all (NFS). So the kind of event is ignored: any event, or two seconds without one,
//! triggers a read; new content is accepted once two reads 150 ms apart are equal; and a file that is empty or missing
//! gets more time, since most saves begin like that.

use super::coordinator::{Coordinator, Found};
use super::handle::PollNow;
use super::status::{Origin, Wrong};
use super::watch::Watch;
use diana_rules::Document;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// The time between two reads of a file that is changing.
const QUIET: Duration = Duration::from_millis(150);

/// The maximum number of reads of a file that keeps changing: three seconds.
const MOST_LOOKS: usize = 20;

/// The number of equal reads after which a file counts as empty or missing: 600 ms.
const LOOKS_AT_NOTHING: usize = 5;

/// The poll interval without events.
const POLL: Duration = Duration::from_secs(2);

/// A file that may change.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
}

/// The result of a read: the text, or an error.
type Seen = Result<String, String>;

/// The same with the modification time, since a file that is rewritten constantly can have the same content each time.
#[derive(Debug, PartialEq, Eq)]
struct Glance {
    seen: Seen,
    changed: Option<SystemTime>,
}

impl LocalFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Reads the file at startup: at once, unless it is just being written.
    pub(super) async fn first(&self) -> Result<Found, String> {
        let seen = self.look().await.seen;
        let seen = if seen.as_ref().is_ok_and(|text| text.trim().is_empty()) { self.settled(None).await } else { seen };
        seen.map(|text| self.found(text))
    }

    /// Sends every change to the coordinator; never returns.
    pub(super) async fn follow(self, desk: Arc<Coordinator>, mut looks: mpsc::Receiver<PollNow>) {
        let watch = Arc::new(Watch::new());
        let mut known: Option<Seen> = None;
        let mut asked: Option<PollNow> = None;
        loop {
            let (aim, path) = (Arc::clone(&watch), self.path.clone());
            // File access may block. An error means that the runtime is shutting down.
            let _ = tokio::task::spawn_blocking(move || aim.aim(&path)).await;
            let seen = self.settled(known.as_ref()).await;
            if asked.is_some() || known.as_ref() != Some(&seen) {
                match &seen {
                    Ok(text) => {
                        desk.ledger().resolved(Origin::Local, Wrong::Source);
                        desk.offer(self.found(text.clone()));
                    }
                    Err(what) => {
                        desk.ledger().error(Origin::Local, Wrong::Source, what);
                    }
                }
                known = Some(seen);
            }
            if let Some(look) = asked.take() {
                // The receiver may be gone.
                let _ = look.send(());
            }
            tokio::select! {
                Some(look) = looks.recv() => asked = Some(look),
                () = watch.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Returns the content once it is stable; at once if it equals `known`.
    async fn settled(&self, known: Option<&Seen>) -> Seen {
        let mut last = self.look().await;
        let mut alike = 1;
        for _ in 0..MOST_LOOKS {
            let is_nothing = last.seen.as_ref().map_or(true, |text| text.trim().is_empty());
            if known == Some(&last.seen) || alike >= if is_nothing { LOOKS_AT_NOTHING } else { 2 } {
                return last.seen;
            }
            tokio::time::sleep(QUIET).await;
            let next = self.look().await;
            alike = if next == last { alike + 1 } else { 1 };
            last = next;
        }
        // A partly written document may be valid, with only some of its rules.
        Err(format!("{}: it changes all the time, and is read when it has come to rest", self.path.display()))
    }

    async fn look(&self) -> Glance {
        let path = self.path.clone();
        let look = tokio::task::spawn_blocking(move || {
            // Read before the content: a change in between is seen by the next read.
            let changed = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
            Glance { seen: read_capped(&path, 0), changed }
        });
        let gone = |_| Glance { seen: Err("reading was given up".to_owned()), changed: None };
        let Glance { seen, changed } = look.await.unwrap_or_else(gone);
        Glance { seen: seen.map_err(|what| format!("{}: {what}", self.path.display())), changed }
    }

    fn found(&self, text: String) -> Found {
        Found::hashed(Origin::Local, Document::new(self.path.display().to_string(), text))
    }
}

/// Reads a text file of at most a document's size plus `beyond` bytes.
pub(super) fn read_capped(path: &Path, beyond: usize) -> Result<String, String> {
    let told = |error: std::io::Error| format!("it can't be read: {error}");
    // Reading a pipe would block.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let most = Document::MAX_SIZE + beyond;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(told)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() > most {
        return Err(too_large());
    }
    text(bytes)
}

/// Decodes the text of a document.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: byte {}", error.utf8_error().valid_up_to()))
}

/// The error for a document that is too large.
pub(super) fn too_large() -> String {
    format!("it has more than {} bytes, which is the most that is read", Document::MAX_SIZE)
}
