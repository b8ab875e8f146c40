//! The local file, watched.
//!
//! Who saves a file truncates it first, or puts another in its place, or swaps a link to the folder that it is in; a file
//! system may tell of that late or not at all (NFS). So nothing is concluded from *what* changed: a change of any kind, or
//! two seconds without one, is a reason to look; a content that is new is believed once it is the same twice, 150 ms
//! apart, with no change between; and a file that is empty or away has more time to come back, since that is how most
//! savings begin.

use super::coordinator::{Coordinator, Found};
use super::handle::PollNow;
use super::status::{Origin, Wrong};
use super::watch::Watch;
use crate::document::{Document, LARGEST};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

/// Between two looks at a file that is changing.
const QUIET: Duration = Duration::from_millis(150);

/// Looks at a file that never comes to rest: three seconds of them.
const MOST_LOOKS: usize = 20;

/// So many looks alike make a file that is empty or away a fact: 600 ms.
const LOOKS_AT_NOTHING: usize = 5;

/// Without an event.
const POLL: Duration = Duration::from_secs(2);

/// A file that may change.
#[derive(Debug)]
pub(super) struct LocalFile {
    path: PathBuf,
}

/// What a look at the file gave: its text, or what is wrong.
type Seen = Result<String, String>;

/// The same, with when it was last changed: one that is rewritten again and again can look the same each time.
#[derive(Debug, PartialEq, Eq)]
struct Glance {
    seen: Seen,
    changed: Option<SystemTime>,
}

impl LocalFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file as it is at the start: at once, unless it is just being written.
    pub(super) async fn first(&self) -> Result<Found, String> {
        let seen = self.look().await.seen;
        let seen = if seen.as_ref().is_ok_and(|text| text.trim().is_empty()) { self.settled(None).await } else { seen };
        seen.map(|text| self.found(text))
    }

    /// Brings every change to the desk, for ever.
    pub(super) async fn follow(self, desk: Arc<Coordinator>, mut looks: mpsc::Receiver<PollNow>) {
        let watch = Arc::new(Watch::new());
        let mut known: Option<Seen> = None;
        let mut asked: Option<PollNow> = None;
        loop {
            let (aim, path) = (Arc::clone(&watch), self.path.clone());
            // Files can be slow. An error means that the runtime is ending.
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
                // The one who asked may be gone.
                let _ = look.send(());
            }
            tokio::select! {
                Some(look) = looks.recv() => asked = Some(look),
                () = watch.changed() => {}
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// What the file holds once it has come to rest: at once if it is what is `known`.
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
        // Half of a document can be one too, with half of its rules.
        Err(format!("{}: it changes all the time, and is read when it has come to rest", self.path.display()))
    }

    async fn look(&self) -> Glance {
        let path = self.path.clone();
        let look = tokio::task::spawn_blocking(move || {
            // Before the content: what changes in between is seen the next time.
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

/// Reads a file of text, no more than a document and `beyond` of it.
pub(super) fn read_capped(path: &Path, beyond: usize) -> Result<String, String> {
    let told = |error: std::io::Error| format!("it can't be read: {error}");
    // A pipe would be waited for.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let most = LARGEST + beyond;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(told)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(told)?;
    if bytes.len() > most {
        return Err(too_large());
    }
    text(bytes)
}

/// Bytes as a document's text.
pub(super) fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: byte {}", error.utf8_error().valid_up_to()))
}

/// What is said of a document that was not read to its end.
pub(super) fn too_large() -> String {
    format!("it has more than {LARGEST} bytes, which is the most that is read")
}
