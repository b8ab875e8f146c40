//! The sources of rules: a local file that is watched, and a config server whose rules take precedence.
//!
//! ```text
//!  file ─────────── LocalFile ─────┐                             ┌─▶ Apply (the engine checks, and swaps)
//!                                  ├─▶ Coordinator: the newest ─┤
//!  config server ── RemoteWatcher ─┘   of each, a few a second  └─▶ DiskCache (the last good remote document)
//! ```
//!
//! Each source is one task that sends documents to the [coordinator](coordinator::Coordinator). Only the coordinator
//! calls [`Apply`], one call at a time, so that documents never race.
//!
//! # What always holds (`tests/it/remote_over_local.rs`)
//! - A document that [`Apply`] rejects changes nothing, whatever its source, and is
//!   [reported](SourceStatus::last_error).
//! - The config server's document is applied as soon as it is available, and stays active when the config server
//!   becomes unreachable; also over a restart, if there is a folder to [keep](Sources::keep) it. With
//!   [`WhenRemoteIsDown::Local`] the file's rules are applied instead.
//! - Documents of more than 16 MiB are rejected while they are read, and no more than that is buffered.
//! - A source that changes many times a second is applied at most a few times a second, and the last change always
//!   is.
//! - No error, status or debug output contains a password or a token.

mod backoff;
mod client;
mod coordinator;
mod disk_cache;
mod etcd;
mod file;
mod file_events;
mod handle;
mod http;
mod redis;
mod remote_section;
mod remote_url;
mod remote_watcher;
mod status;

pub use disk_cache::default_keep;
pub use handle::WatchHandle;
pub use remote_section::{RemoteSection, WhenRemoteIsDown};
pub use remote_url::{Remote, RemoteError};
pub use status::{Origin, SourceError, SourceStatus};

use coordinator::{Coordinator, SourceDocument};
use diana_rules::{Document, Problems, RuleFile};
use disk_cache::DiskCache;
use file::LocalFile;
use remote_watcher::RemoteWatcher;
use status::{ErrorKind, StatusLog};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The default time to wait for the config server at startup.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);

/// The consumer of documents: the engine, or the program around it.
pub trait Apply: Send + Sync + 'static {
    /// Checks the documents and applies them, or returns their problems and changes nothing.
    ///
    /// The rules of `remote` replace those of `local`; the other sections come from `local`. A document without `rules`
    /// is invalid. At least one document is `Some`. Calls never overlap, and each call may block.
    fn apply(&self, local: Option<&Document>, remote: Option<&Document>) -> Result<(), Problems>;

    /// Returns the number of active rules, for the log; `None` if it is unknown.
    fn rule_count(&self) -> Option<usize> {
        None
    }

    /// Reports that the last applied documents are active; `origin` and `name` are those of the document that the rules
    /// come from.
    fn loaded(&self, origin: Origin, name: &str) {
        let _ = (origin, name);
    }

    /// Reports that a document was rejected, once for each document; the active rules stay.
    fn rejected(&self, error: &SourceError) {
        let _ = error;
    }
}

/// The configured sources of the rules.
///
/// ```no_run
/// # use diana_config::{Apply, Remote, Sources};
/// # use diana_rules::{Document, Problems};
/// # use std::sync::Arc;
/// # async fn start(engine: Arc<dyn Apply>) -> Result<(), Box<dyn std::error::Error>> {
/// let running = Sources::new()
///     .local("diana.yaml")
///     .remote(Remote::parse("etcd://10.0.0.7:2379,10.0.0.8:2379/diana/rules")?)
///     .keep("/var/lib/diana")
///     .start(engine)
///     .await?;
/// println!("{:?}", running.status());
/// running.reload().await; // on SIGHUP: poll all sources now
/// running.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sources {
    local: Option<PathBuf>,
    /// A fixed document in place of a file.
    fixed: Option<Document>,
    remote: Option<Remote>,
    keep: Option<PathBuf>,
    when_down: WhenRemoteIsDown,
    wait: Duration,
}

impl Default for Sources {
    fn default() -> Self {
        let when_down = WhenRemoteIsDown::LastGood;
        Self { local: None, fixed: None, remote: None, keep: None, when_down, wait: FIRST_RESPONSE }
    }
}

/// No document could be applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Neither a file nor a config server was configured.
    #[error("no rule source; expected a file or a config server")]
    NoSource,
    /// No source had a document that could be applied; the error of each source, in the order tried.
    #[error("no source has valid rules:{}", listed(.0))]
    NoValidRules(Vec<SourceError>),
}

fn listed(errors: &[SourceError]) -> String {
    errors.iter().map(|error| format!("\n{}: {}", error.origin, error.what.trim_end())).collect()
}

impl Sources {
    /// Creates an empty set of sources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a file to watch: edits, replacements, and the symlink swap with which Kubernetes updates a ConfigMap.
    #[must_use]
    pub fn local(self, path: impl Into<PathBuf>) -> Self {
        Self { local: Some(path.into()), ..self }
    }

    /// Sets a fixed document in place of a file, for example from standard input.
    #[must_use]
    pub fn document(self, document: Document) -> Self {
        Self { fixed: Some(document), ..self }
    }

    /// Sets a config server, whose rules take precedence over the file's.
    #[must_use]
    pub fn remote(self, remote: Remote) -> Self {
        Self { remote: Some(remote), ..self }
    }

    /// Sets the config server of a file's `remote` section, if it has one, with its settings. The disk cache is
    /// [`default_keep`], unless the section sets another folder.
    pub fn remote_of(self, file: &RuleFile) -> Result<Self, RemoteError> {
        let Some(section) = file.section::<RemoteSection>()? else { return Ok(self) };
        let mut remote = Remote::parse(section.from.reveal())?;
        if let Some(token) = &section.token {
            remote = remote.token(token.reveal());
        }
        if let Some(poll) = section.poll {
            remote = remote.poll(poll);
        }
        if let Some(long_poll) = section.long_poll {
            remote = remote.long_poll(long_poll);
        }
        if let Some(timeout) = section.timeout {
            remote = remote.timeout(timeout);
        }
        if let Some(format) = section.format {
            remote = remote.format(format);
        }
        let sources = self.remote(remote).when_down(section.when_down);
        Ok(match section.keep.as_ref().map(Into::into).or_else(default_keep) {
            Some(folder) => sources.keep(folder),
            None => sources,
        })
    }

    /// Sets the folder that keeps the last good remote document, for a start while the config server is unreachable;
    /// see [`default_keep`]. It is created when needed. Without a folder, no document is kept.
    #[must_use]
    pub fn keep(self, folder: impl Into<PathBuf>) -> Self {
        Self { keep: Some(folder.into()), ..self }
    }

    /// Sets which rules apply while the config server is unreachable: its last good rules, or the file's. With the
    /// latter, no document is [kept](Self::keep).
    #[must_use]
    pub fn when_down(self, when_down: WhenRemoteIsDown) -> Self {
        Self { when_down, ..self }
    }

    /// Sets how long [`start`](Self::start) waits for the config server (1 s by default). Later responses are still
    /// applied.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Reads the file, queries the config server (for at most [`wait`](Self::wait)), applies the result, and watches
    /// both.
    ///
    /// The documents are tried in this order until one can be applied: the config server's, the cached one, the file
    /// alone. Each failure is recorded. Needs a tokio runtime with time and I/O.
    pub async fn start(self, apply: Arc<dyn Apply>) -> Result<WatchHandle, StartError> {
        let Self { local, fixed, remote, keep, when_down, wait } = self;
        let keep = keep.filter(|_| when_down == WhenRemoteIsDown::LastGood);
        if local.is_none() && fixed.is_none() && remote.is_none() {
            return Err(StartError::NoSource);
        }
        let status_log = Arc::new(StatusLog::default());
        let file = local.map(LocalFile::new);
        if file.is_some() {
            status_log.has_file();
        }
        let disk_cache = remote.as_ref().zip(keep).map(|(remote, folder)| DiskCache::new(&folder, remote));
        if remote.is_some() {
            status_log.has_remote();
        }
        let mut watcher = remote.map(RemoteWatcher::new);

        let (local_read, remote_read) = tokio::join!(
            async {
                match &file {
                    Some(file) => Some(file.read_first().await),
                    None => fixed.map(|document| Ok(SourceDocument::hashed(Origin::Local, document))),
                }
            },
            async {
                match &mut watcher {
                    Some(watcher) => Some(tokio::time::timeout(wait, watcher.read()).await),
                    None => None,
                }
            },
        );

        let mut failures = Vec::new();
        let mut report = |origin, what: String| failures.push(status_log.error(origin, ErrorKind::Source, &what));
        let local = local_read.and_then(|read| read.map_err(|what| report(Origin::Local, what)).ok());
        let remote = match remote_read {
            None => None,
            Some(Ok(response)) => {
                status_log.connected(response.as_ref().map_or_else(|failure| failure.responded, |_| true));
                response.map_err(|failure| report(Origin::Remote, failure.what)).ok()
            }
            Some(Err(_)) => {
                report(Origin::Remote, format!("no response within {wait:?}"));
                None
            }
        };

        let coordinator = Arc::new(Coordinator::new(apply, disk_cache, when_down, Arc::clone(&status_log)));
        match coordinator.open(local, remote, &mut failures).await {
            Ok(()) => Ok(WatchHandle::new(coordinator, status_log, file, watcher)),
            Err(()) => Err(StartError::NoValidRules(failures)),
        }
    }
}
