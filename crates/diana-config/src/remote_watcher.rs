//! Watches a config server, over any protocol.

use super::backoff::Backoff;
use super::client::clean;
use super::coordinator::{Coordinator, SourceDocument};
use super::etcd::Etcd;
use super::handle::PollNow;
use super::http::Http;
use super::redis::Redis;
use super::remote_url::{Location, Remote};
use super::status::{ErrorKind, Origin};
use diana_rules::Document;
use diana_rules::document::Format;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of consecutive failures after which a config server is unreachable; one broken connection is not enough.
const UNREACHABLE: u32 = 2;

/// The reason why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFailure {
    pub(super) what: String,
    /// Whether the config server responded.
    pub(super) responded: bool,
}

impl RemoteFailure {
    /// The config server did not respond, or not correctly.
    pub(super) fn unreachable(what: impl Into<String>) -> Self {
        Self { what: what.into(), responded: false }
    }

    /// The config server responded, but not with a document.
    pub(super) fn no_document(what: impl Into<String>) -> Self {
        Self { what: what.into(), responded: true }
    }
}

/// An event from the config server.
#[derive(Debug)]
pub(super) enum RemoteEvent {
    /// A document, which may be unchanged.
    Document(SourceDocument),
    /// No change.
    Same,
    /// There is no document; the reason. Watching continues.
    Absent(String),
}

/// The name and format of a config server's documents.
#[derive(Clone, Debug)]
pub(super) struct Label {
    name: String,
    format: Format,
}

impl Label {
    fn new(remote: &Remote) -> Self {
        Self { name: remote.redacted().to_owned(), format: remote.effective_format() }
    }

    /// Creates a document from its text; its version is a hash unless the config server has its own.
    pub(super) fn document(&self, text: String, version: Option<String>) -> SourceDocument {
        let document = Document::new(&self.name, text).with_format(self.format);
        let hashed = SourceDocument::hashed(Origin::Remote, document);
        match version {
            // The version is untrusted and will be shown.
            Some(version) => SourceDocument { version: clean(&version), ..hashed },
            None => hashed,
        }
    }
}

/// The watcher of one config server.
#[derive(Debug)]
pub(super) struct RemoteWatcher {
    protocol: Protocol,
    name: String,
}

#[derive(Debug)]
enum Protocol {
    Http(Box<Http>),
    Etcd(Box<Etcd>),
    Redis(Box<Redis>),
}

impl RemoteWatcher {
    pub(super) fn new(remote: Remote) -> Self {
        let label = Label::new(&remote);
        let name = remote.redacted().to_owned();
        let protocol = match remote.location.clone() {
            Location::Http(url) => Protocol::Http(Box::new(Http::new(url, remote, label))),
            Location::Etcd { endpoints, key } => Protocol::Etcd(Box::new(Etcd::new(endpoints, key, remote, label))),
            Location::Redis { url, key } => Protocol::Redis(Box::new(Redis::new(url, key, remote, label))),
        };
        Self { protocol, name }
    }

    /// Reads the document now.
    pub(super) async fn read(&mut self) -> Result<SourceDocument, RemoteFailure> {
        let read = match &mut self.protocol {
            Protocol::Http(http) => http.read().await,
            Protocol::Etcd(etcd) => etcd.read().await,
            Protocol::Redis(redis) => redis.read().await,
        };
        read.map_err(|failure| self.with_name(failure))
    }

    /// Waits for the next event; a new connection begins with a read. Cancel safe.
    async fn next(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        let event = match &mut self.protocol {
            Protocol::Http(http) => http.next().await,
            Protocol::Etcd(etcd) => etcd.next().await,
            Protocol::Redis(redis) => redis.next().await,
        };
        match event {
            Ok(RemoteEvent::Absent(what)) => Ok(RemoteEvent::Absent(format!("{}: {what}", self.name))),
            Ok(event) => Ok(event),
            Err(failure) => Err(self.with_name(failure)),
        }
    }

    fn with_name(&self, failure: RemoteFailure) -> RemoteFailure {
        RemoteFailure { what: format!("{}: {}", self.name, failure.what), ..failure }
    }

    /// Sends every change to the coordinator; never returns.
    pub(super) async fn run(mut self, coordinator: Arc<Coordinator>, mut polls: mpsc::Receiver<PollNow>) {
        let mut backoff = Backoff::default();
        let mut absent = None;
        let mut failures = 0_u32;
        let mut requested = None;
        loop {
            let (event, poll) = if let Some(poll) = requested.take() {
                (self.read().await.map(RemoteEvent::Document), Some(poll))
            } else {
                tokio::select! {
                    Some(poll) = polls.recv() => {
                        requested = Some(poll);
                        continue;
                    }
                    event = self.next() => (event, None),
                }
            };
            let mut wait = None;
            match event {
                Ok(event) => {
                    backoff.succeeded();
                    coordinator.status_log().connected(true);
                    if !matches!(event, RemoteEvent::Absent(_)) {
                        coordinator.status_log().resolved(Origin::Remote, ErrorKind::Source);
                    }
                    failures = 0;
                    coordinator.reachable(true);
                    match event {
                        RemoteEvent::Document(document) => {
                            absent = None;
                            coordinator.offer(document);
                        }
                        RemoteEvent::Same => absent = None,
                        RemoteEvent::Absent(what) => {
                            // Reported once, not at every poll.
                            if absent.as_ref() != Some(&what) {
                                coordinator.status_log().error(Origin::Remote, ErrorKind::Source, &what);
                            }
                            absent = Some(what);
                        }
                    }
                }
                Err(failure) => {
                    coordinator.status_log().connected(failure.responded);
                    coordinator.status_log().error(Origin::Remote, ErrorKind::Source, &failure.what);
                    failures = if failure.responded { 0 } else { failures.saturating_add(1) };
                    if failures >= UNREACHABLE {
                        coordinator.reachable(false);
                    }
                    wait = Some(backoff.failed());
                }
            }
            if let Some(poll) = poll {
                // The receiver may be dropped.
                let _ = poll.send(());
            }
            if let Some(wait) = wait {
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    // A requested poll ends the wait.
                    Some(poll) = polls.recv() => requested = Some(poll),
                }
            }
        }
    }
}
