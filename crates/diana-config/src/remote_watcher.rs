//! Watches a config server, over any protocol.

use super::backoff::Backoff;
use super::client::clean;
use super::coordinator::{Coordinator, Found};
use super::etcd::Etcd;
use super::handle::PollNow;
use super::http::Http;
use super::redis::Redis;
use super::remote::{Place, Remote};
use super::status::{Origin, Wrong};
use diana_rules::Document;
use diana_rules::document::Format;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The number of consecutive failures after which a config server is unreachable; one broken connection is not enough.
const UNREACHABLE: u32 = 2;

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFailure {
    pub(super) what: String,
    /// Whether the config server responded.
    pub(super) answered: bool,
}

impl RemoteFailure {
    /// The config server did not respond, or not correctly.
    pub(super) fn away(what: impl Into<String>) -> Self {
        Self { what: what.into(), answered: false }
    }

    /// The config server responded, but not with a document.
    pub(super) fn answer(what: impl Into<String>) -> Self {
        Self { what: what.into(), answered: true }
    }
}

/// An event from the config server.
#[derive(Debug)]
pub(super) enum RemoteEvent {
    /// A document, which may be unchanged.
    Document(Found),
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
        Self { name: remote.shown().to_owned(), format: remote.format_in_use() }
    }

    /// Creates a document from its text; its version is a hash unless the config server has its own.
    pub(super) fn found(&self, text: String, version: Option<String>) -> Found {
        let document = Document::new(&self.name, text).with_format(self.format);
        let found = Found::hashed(Origin::Remote, document);
        match version {
            // The version is untrusted and will be shown.
            Some(version) => Found { version: clean(&version), ..found },
            None => found,
        }
    }
}

/// The watcher of one config server.
#[derive(Debug)]
pub(super) struct RemoteWatcher {
    kind: Kind,
    name: String,
}

#[derive(Debug)]
enum Kind {
    Http(Box<Http>),
    Etcd(Box<Etcd>),
    Redis(Box<Redis>),
}

impl RemoteWatcher {
    pub(super) fn new(remote: Remote) -> Self {
        let label = Label::new(&remote);
        let name = remote.shown().to_owned();
        let kind = match remote.place.clone() {
            Place::Http(url) => Kind::Http(Box::new(Http::new(url, remote, label))),
            Place::Etcd { endpoints, key } => Kind::Etcd(Box::new(Etcd::new(endpoints, key, remote, label))),
            Place::Redis { url, key } => Kind::Redis(Box::new(Redis::new(url, key, remote, label))),
        };
        Self { kind, name }
    }

    /// Reads the document now.
    pub(super) async fn look(&mut self) -> Result<Found, RemoteFailure> {
        let looked = match &mut self.kind {
            Kind::Http(http) => http.look().await,
            Kind::Etcd(etcd) => etcd.look().await,
            Kind::Redis(redis) => redis.look().await,
        };
        looked.map_err(|trouble| self.named(trouble))
    }

    /// Waits for the next event; a new connection begins with a read. Cancel safe.
    async fn next(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        let news = match &mut self.kind {
            Kind::Http(http) => http.next().await,
            Kind::Etcd(etcd) => etcd.next().await,
            Kind::Redis(redis) => redis.next().await,
        };
        match news {
            Ok(RemoteEvent::Absent(what)) => Ok(RemoteEvent::Absent(format!("{}: {what}", self.name))),
            Ok(news) => Ok(news),
            Err(trouble) => Err(self.named(trouble)),
        }
    }

    fn named(&self, trouble: RemoteFailure) -> RemoteFailure {
        RemoteFailure { what: format!("{}: {}", self.name, trouble.what), ..trouble }
    }

    /// Sends every change to the coordinator; never returns.
    pub(super) async fn follow(mut self, desk: Arc<Coordinator>, mut looks: mpsc::Receiver<PollNow>) {
        let mut backoff = Backoff::default();
        let mut absent = None;
        let mut failures = 0_u32;
        let mut asked = None;
        loop {
            let (news, look) = if let Some(look) = asked.take() {
                (self.look().await.map(RemoteEvent::Document), Some(look))
            } else {
                tokio::select! {
                    Some(look) = looks.recv() => {
                        asked = Some(look);
                        continue;
                    }
                    news = self.next() => (news, None),
                }
            };
            let mut pause = None;
            match news {
                Ok(news) => {
                    backoff.succeeded();
                    desk.ledger().connected(true);
                    if !matches!(news, RemoteEvent::Absent(_)) {
                        desk.ledger().resolved(Origin::Remote, Wrong::Source);
                    }
                    failures = 0;
                    desk.reachable(true);
                    match news {
                        RemoteEvent::Document(found) => {
                            absent = None;
                            desk.offer(found);
                        }
                        RemoteEvent::Same => absent = None,
                        RemoteEvent::Absent(what) => {
                            // Reported once, not at every poll.
                            if absent.as_ref() != Some(&what) {
                                desk.ledger().error(Origin::Remote, Wrong::Source, &what);
                            }
                            absent = Some(what);
                        }
                    }
                }
                Err(trouble) => {
                    desk.ledger().connected(trouble.answered);
                    desk.ledger().error(Origin::Remote, Wrong::Source, &trouble.what);
                    failures = if trouble.answered { 0 } else { failures.saturating_add(1) };
                    if failures >= UNREACHABLE {
                        desk.reachable(false);
                    }
                    pause = Some(backoff.failed());
                }
            }
            if let Some(look) = look {
                // The receiver may be gone.
                let _ = look.send(());
            }
            if let Some(pause) = pause {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    // A requested poll ends the wait.
                    Some(look) = looks.recv() => asked = Some(look),
                }
            }
        }
    }
}
