//! A configuration centre that is followed, whatever it speaks.

use super::backoff::Backoff;
use super::coordinator::{Coordinator, Found};
use super::etcd::Etcd;
use super::handle::PollNow;
use super::http::Http;
use super::redact::clean;
use super::redis::Redis;
use super::remote::{Place, Remote};
use super::status::{Origin, Wrong};
use crate::document::{Document, Format};
use std::sync::Arc;
use tokio::sync::mpsc;

/// After so many attempts in a row without an answer a config server is unreachable: a connection that breaks once is not.
const UNREACHABLE: u32 = 2;

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFailure {
    pub(super) what: String,
    /// Whether it was the centre that said so.
    pub(super) answered: bool,
}

impl RemoteFailure {
    /// The centre did not answer as it should.
    pub(super) fn away(what: impl Into<String>) -> Self {
        Self { what: what.into(), answered: false }
    }

    /// The centre answered, but not with a document.
    pub(super) fn answer(what: impl Into<String>) -> Self {
        Self { what: what.into(), answered: true }
    }
}

/// What the centre had to say.
#[derive(Debug)]
pub(super) enum RemoteEvent {
    /// A document, which may be the one that is known.
    Document(Found),
    /// Nothing new.
    Same,
    /// There is none; what is said of that. Waiting for one goes on as before.
    Absent(String),
}

/// How a centre's documents are called.
#[derive(Clone, Debug)]
pub(super) struct Label {
    name: String,
    format: Format,
}

impl Label {
    fn new(remote: &Remote) -> Self {
        Self { name: remote.shown().to_owned(), format: remote.format_in_use() }
    }

    /// The document with this text; the hash of it is its version, if the centre has no other.
    pub(super) fn found(&self, text: String, version: Option<String>) -> Found {
        let document = Document::new(&self.name, text).with_format(self.format);
        let found = Found::hashed(Origin::Remote, document);
        match version {
            // A stranger's word, which is shown.
            Some(version) => Found { version: clean(&version), ..found },
            None => found,
        }
    }
}

/// A connection to a centre.
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

    /// Asks now.
    pub(super) async fn look(&mut self) -> Result<Found, RemoteFailure> {
        let looked = match &mut self.kind {
            Kind::Http(http) => http.look().await,
            Kind::Etcd(etcd) => etcd.look().await,
            Kind::Redis(redis) => redis.look().await,
        };
        looked.map_err(|trouble| self.named(trouble))
    }

    /// Waits for news, at first for none: a new connection begins with a look. May be given up at any time.
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

    /// Brings all that is new to the desk, for ever.
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
                            // Told once, not every few seconds.
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
                // The one who asked may be gone.
                let _ = look.send(());
            }
            if let Some(pause) = pause {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    // Who asks for a look does not wait.
                    Some(look) = looks.recv() => asked = Some(look),
                }
            }
        }
    }
}
