//! Where rules come from: a local file that is watched, and a configuration centre whose rules win over the file's.
//!
//! ```text
//!  file ──── LocalFile ──┐                       ┌─▶ Apply (the engine checks, and swaps)
//!                        ├─▶ Coordinator: the newest of ┤
//!  centre ── RemoteWatcher ─────┘   each, a few a second└─▶ DiskCache (the last good remote document, on disk)
//! ```
//!
//! Each source is one task that brings what it finds to the [desk](coordinator::Desk). The desk alone calls [`Apply`], one call at a
//! time, so that nobody has to think about two documents that arrive at once.
//!
//! # What always holds (`tests/it/remote_over_local.rs`)
//! - A document that [`Apply`] refuses changes nothing, whatever it came from, and is [told](SourceStatus::last_error).
//! - The centre's document is in force as soon as it can be had, and stays when the centre goes away; over a restart too,
//!   if there is a place to [keep](Sources::keep) it. With [`WhenRemoteIsDown::Local`] the file's rules are in force instead.
//! - Documents of more than 16 MiB are refused while they are read, and nothing that a centre sends is held beyond that.
//! - A source that changes many times a second is put in force a few times a second at most, and the last change always.
//! - No password and no token is in any error, status or debug output.

mod backoff;
mod client;
mod coordinator;
mod disk_cache;
mod etcd;
mod file;
mod handle;
mod http;
mod redact;
mod redis;
mod remote;
mod remote_watcher;
mod status;
mod watch;

pub use disk_cache::default_keep;
pub use handle::WatchHandle;
pub use remote::{Remote, RemoteError};
pub use status::{Origin, SourceError, SourceStatus};

use crate::document::Document;
use crate::file::WhenRemoteIsDown;
use crate::problem::Problems;
use coordinator::{Coordinator, Found};
use disk_cache::DiskCache;
use file::LocalFile;
use remote_watcher::RemoteWatcher;
use status::{StatusLog, Wrong};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What is waited for the centre before the program listens, unless it is told otherwise.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// What turns documents into what is in force: the engine, or the program around it.
pub trait Apply: Send + Sync + 'static {
    /// Checks the documents and puts them in force, or says what is wrong and changes nothing.
    ///
    /// The rules of `remote` stand in the place of those of `local`; the other sections are `local`'s. A document without
    /// `rules` is wrong. At least one of them is there. Calls never overlap, and each is made where it may take its time.
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems>;
}

/// Where the rules are to come from.
///
/// ```no_run
/// # use diana_rules::{Apply, Document, Problems, Remote, Sources};
/// # use std::sync::Arc;
/// # async fn start(engine: Arc<dyn Apply>) -> Result<(), Box<dyn std::error::Error>> {
/// let running = Sources::new()
///     .local("diana.yaml")
///     .remote(Remote::parse("etcd://10.0.0.7:2379,10.0.0.8:2379/diana/rules")?)
///     .keep("/var/lib/diana")
///     .start(engine)
///     .await?;
/// println!("{:?}", running.status());
/// running.reload().await; // on SIGHUP: look at everything again, now
/// running.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sources {
    local: Option<PathBuf>,
    /// In place of a file.
    fixed: Option<Document>,
    remote: Option<Remote>,
    keep: Option<PathBuf>,
    when_down: WhenRemoteIsDown,
    wait: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        let when_down = WhenRemoteIsDown::LastGood;
        Self { local: None, fixed: None, remote: None, keep: None, when_down, wait: FIRST_ANSWER }
    }
}

/// Nothing at all could be put in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Neither a file nor a centre was named.
    #[error("rules have no source: neither a file nor a remote was given")]
    NoSource,
    /// No source had a document that could be put in force; what was wrong with each, in the order tried.
    #[error("no source has rules that can be put in force:{}", listed(.0))]
    NothingInForce(Vec<SourceError>),
}

fn listed(errors: &[SourceError]) -> String {
    errors.iter().map(|error| format!("\n{}: {}", error.origin, error.what.trim_end())).collect()
}

impl Sources {
    /// No source yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A file, which is watched: edits, replacements, and the swap of links by which Kubernetes updates a ConfigMap.
    #[must_use]
    pub fn local(self, path: impl Into<PathBuf>) -> Self {
        Self { local: Some(path.into()), ..self }
    }

    /// A document in place of a file: one that was read from standard input, and can't change.
    #[must_use]
    pub fn document(self, document: Document) -> Self {
        Self { fixed: Some(document), ..self }
    }

    /// A configuration centre, whose rules win over the file's.
    #[must_use]
    pub fn remote(self, remote: Remote) -> Self {
        Self { remote: Some(remote), ..self }
    }

    /// The folder in which the last good remote document is kept, for a start while the centre is away; see
    /// [`default_keep`]. It is made when it is needed. Without one nothing is kept.
    #[must_use]
    pub fn keep(self, folder: impl Into<PathBuf>) -> Self {
        Self { keep: Some(folder.into()), ..self }
    }

    /// Which rules apply while the config server is unreachable: what it sent last, or the file's. With the latter nothing is
    /// [kept](Self::keep).
    #[must_use]
    pub fn when_down(self, when_down: WhenRemoteIsDown) -> Self {
        Self { when_down, ..self }
    }

    /// How long [`start`](Self::start) waits for the centre (a second). It is asked on afterwards.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Reads the file and asks the centre (for a second at most), puts the result in force, and goes on watching both.
    ///
    /// What is tried, until something can be put in force: the centre's document, the one kept from the last time, the file
    /// alone. Each failure is recorded. Needs a tokio runtime with time and I/O.
    pub async fn start(self, apply: Arc<dyn Apply>) -> Result<WatchHandle, StartError> {
        let Self { local, fixed, remote, keep, when_down, wait } = self;
        let keep = keep.filter(|_| when_down == WhenRemoteIsDown::LastGood);
        if local.is_none() && fixed.is_none() && remote.is_none() {
            return Err(StartError::NoSource);
        }
        let ledger = Arc::new(StatusLog::default());
        let file = local.map(LocalFile::new);
        let kept = remote.as_ref().zip(keep).map(|(remote, folder)| DiskCache::new(&folder, remote));
        if remote.is_some() {
            ledger.has_remote();
        }
        let mut centre = remote.map(RemoteWatcher::new);

        let (found, fetched) = tokio::join!(
            async {
                match &file {
                    Some(file) => Some(file.first().await),
                    None => fixed.map(|document| Ok(Found::hashed(Origin::Local, document))),
                }
            },
            async {
                match &mut centre {
                    Some(centre) => Some(tokio::time::timeout(wait, centre.look()).await),
                    None => None,
                }
            },
        );

        let mut failures = Vec::new();
        let mut told = |origin, what: String| failures.push(ledger.error(origin, Wrong::Source, &what));
        let local = found.and_then(|found| found.map_err(|what| told(Origin::Local, what)).ok());
        let first = match fetched {
            None => None,
            Some(Ok(answer)) => {
                ledger.connected(answer.as_ref().map_or_else(|trouble| trouble.answered, |_| true));
                answer.map_err(|trouble| told(Origin::Remote, trouble.what)).ok()
            }
            Some(Err(_)) => {
                told(Origin::Remote, format!("no answer within {wait:?}"));
                None
            }
        };

        let desk = Arc::new(Coordinator::new(apply, kept, when_down, Arc::clone(&ledger)));
        match desk.open(local, first, &mut failures).await {
            Ok(()) => Ok(WatchHandle::new(desk, ledger, file, centre)),
            Err(()) => Err(StartError::NothingInForce(failures)),
        }
    }
}
