//! Receives the documents of all sources; the only place that applies them.
//!
//! A source offers a document and continues: only its newest offer is kept, so that a source that changes constantly
//! costs no memory and a few checks per second. The coordinator then tries the newest documents of both sources; if
//! they are rejected, it tries each with the active document of the other source, so that a bad local edit does not
//! block a remote change, or vice versa. A rejected document stays pending: it may become valid when the other source
//! changes.
//!
//! With `when_down: local`, the config server's document is applied only while the config server is reachable.
//! Otherwise it is kept in memory.

use super::Apply;
use super::disk_cache::DiskCache;
use super::status::{Origin, SourceError, StatusLog, Wrong};
use crate::WhenRemoteIsDown;
use diana_rules::Document;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The minimum time between two applied documents.
const GAP: Duration = Duration::from_millis(250);

/// A document that a source found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) origin: Origin,
    pub(super) document: Arc<Document>,
    /// The version as the source reports it.
    pub(super) version: String,
}

impl Found {
    /// Creates a document whose version is its hash.
    pub(super) fn hashed(origin: Origin, document: Document) -> Self {
        let version = hex(&Sha256::digest(document.text())).get(..12).unwrap_or_default().to_owned();
        Self { origin, document: Arc::new(document), version }
    }

    /// The source of the document; a document from the disk cache belongs to the config server.
    fn source(&self) -> Origin {
        if self.origin == Origin::Local { Origin::Local } else { Origin::Remote }
    }

    fn is_same_as(&self, other: &Self) -> bool {
        self.document == other.document
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The state of both sources.
#[derive(Debug, Default)]
struct Sides {
    local: SourceState,
    remote: SourceState,
    /// Whether the local rules apply, because the config server is unreachable.
    is_down: bool,
}

impl Sides {
    /// The document whose rules are active.
    fn rules(&self) -> Option<&Found> {
        self.remote.in_force.as_ref().filter(|_| !self.is_down).or(self.local.in_force.as_ref())
    }
}

/// The state of one source.
#[derive(Debug, Default)]
struct SourceState {
    in_force: Option<Found>,
    /// A newer document that has not been tried yet or was rejected.
    pending: Option<Found>,
    /// Whether the rejection of the pending document has been reported.
    told: bool,
}

impl SourceState {
    fn newest(&self) -> Option<&Found> {
        self.pending.as_ref().or(self.in_force.as_ref())
    }

    /// Marks the pending document as applied.
    fn settle(&mut self) {
        if let Some(found) = self.pending.take() {
            self.in_force = Some(found);
        }
        self.told = false;
    }
}

/// See the [module](self).
pub(super) struct Coordinator {
    apply: Arc<dyn Apply>,
    kept: Option<DiskCache>,
    when_down: WhenRemoteIsDown,
    ledger: Arc<StatusLog>,
    offers: Mutex<Mailbox>,
    wake: Notify,
    /// The number of offers that have been processed.
    settled: watch::Sender<u64>,
    sides: tokio::sync::Mutex<Sides>,
}

/// Offers that have not been processed yet.
#[derive(Default)]
struct Mailbox {
    local: Option<Found>,
    remote: Option<Found>,
    /// Whether the config server is unreachable, if that has changed.
    is_down: Option<bool>,
    count: u64,
}

impl Coordinator {
    pub(super) fn new(
        apply: Arc<dyn Apply>,
        kept: Option<DiskCache>,
        when_down: WhenRemoteIsDown,
        ledger: Arc<StatusLog>,
    ) -> Self {
        let sides = tokio::sync::Mutex::default();
        Self {
            apply,
            kept,
            when_down,
            ledger,
            offers: Mutex::default(),
            wake: Notify::new(),
            settled: watch::Sender::new(0),
            sides,
        }
    }

    pub(super) fn ledger(&self) -> &StatusLog {
        &self.ledger
    }

    /// Applies the first documents: the remote one, else the one from the disk cache, else the local one alone.
    pub(super) async fn open(
        &self,
        local: Option<Found>,
        remote: Option<Found>,
        failures: &mut Vec<SourceError>,
    ) -> Result<(), ()> {
        let mut sides = self.sides.lock().await;
        if let Some(remote) = &remote {
            match self.attempt(local.as_ref(), Some(remote)).await {
                Ok(()) => {
                    sides.local.in_force = local;
                    sides.remote.in_force = Some(remote.clone());
                    self.record(&sides, Origin::Remote).await;
                    return Ok(());
                }
                Err(what) => failures.push(self.ledger.error(Origin::Remote, Wrong::Document, &what)),
            }
        }
        // Rejected now, it may be valid with another local file.
        sides.remote.pending = remote;
        sides.remote.told = true;
        if let Some(kept) = &self.kept {
            let tried = match kept.read().await {
                Ok(Some(kept)) => self.attempt(local.as_ref(), Some(&kept)).await.map(|()| Some(kept)),
                Ok(None) => Ok(None),
                Err(what) => Err(what),
            };
            match tried {
                Ok(Some(kept)) => {
                    sides.local.in_force = local;
                    sides.remote.in_force = Some(kept);
                    self.record(&sides, Origin::LastGood).await;
                    return Ok(());
                }
                Ok(None) => {}
                Err(what) => failures.push(self.ledger.error(Origin::LastGood, Wrong::Source, &what)),
            }
        }
        let Some(local) = local else { return Err(()) };
        match self.attempt(Some(&local), None).await {
            Ok(()) => {
                sides.local.in_force = Some(local);
                self.record(&sides, Origin::Local).await;
                Ok(())
            }
            Err(what) => {
                failures.push(self.ledger.error(Origin::Local, Wrong::Document, &what));
                Err(())
            }
        }
    }

    /// Stores a document of a source; replaces an older offer that has not been processed.
    pub(super) fn offer(&self, found: Found) {
        let mut offers = self.offers.lock();
        offers.count += 1;
        match found.origin {
            Origin::Local => offers.local = Some(found),
            Origin::Remote | Origin::LastGood => offers.remote = Some(found),
        }
        drop(offers);
        self.wake.notify_one();
    }

    /// Records whether the config server is reachable; relevant only for `when_down: local`.
    pub(super) fn reachable(&self, is_reachable: bool) {
        if self.when_down == WhenRemoteIsDown::LastGood {
            return;
        }
        let mut offers = self.offers.lock();
        offers.count += 1;
        offers.is_down = Some(!is_reachable);
        drop(offers);
        self.wake.notify_one();
    }

    /// Waits until all offers so far have been applied or rejected.
    pub(super) async fn settled(&self) {
        let count = self.offers.lock().count;
        // The sender can't be dropped, since `self` owns it.
        let _ = self.settled.subscribe().wait_for(|settled| *settled >= count).await;
    }

    /// Processes offers until `stop`; an offer in progress is completed.
    pub(super) async fn run(&self, stop: &Notify) {
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = stop.notified() => return,
            }
            let (local, remote, is_down, count) = {
                let mut offers = self.offers.lock();
                (offers.local.take(), offers.remote.take(), offers.is_down.take(), offers.count)
            };
            let mut sides = self.sides.lock().await;
            let has_turned = is_down.is_some_and(|is_down| is_down != sides.is_down) && sides.remote.newest().is_some();
            sides.is_down = is_down.unwrap_or(sides.is_down);
            let changed = [self.note(&mut sides, local).await, self.note(&mut sides, remote).await];
            if has_turned || changed.contains(&true) {
                self.settle(&mut sides).await;
                drop(sides);
                self.settled.send_replace(count);
                let next = Instant::now() + GAP;
                tokio::select! {
                    () = tokio::time::sleep_until(next) => {}
                    () = stop.notified() => return,
                }
            } else {
                self.settled.send_replace(count);
            }
        }
    }

    /// Stores an offer as pending; returns `true` if there is something to try.
    async fn note(&self, sides: &mut Sides, found: Option<Found>) -> bool {
        let Some(found) = found else { return false };
        let remote_rules = sides.remote.in_force.is_some() && !sides.is_down;
        let side = if found.origin == Origin::Local { &mut sides.local } else { &mut sides.remote };
        if let Some(in_force) = side.in_force.as_mut().filter(|in_force| in_force.is_same_as(&found)) {
            let renamed = in_force.version != found.version || in_force.origin != found.origin;
            *in_force = found;
            side.pending = None;
            side.told = false;
            self.ledger.resolved(in_force.source(), Wrong::Document);
            if renamed {
                let in_force = side.in_force.clone();
                self.rename(in_force, remote_rules).await;
            }
            return false;
        }
        if let Some(pending) = side.pending.as_mut().filter(|pending| pending.is_same_as(&found)) {
            // It was rejected before, or will be tried with the other source's offer.
            *pending = found;
            return false;
        }
        side.pending = Some(found);
        side.told = false;
        true
    }

    /// Records the same text with another version, or from the config server instead of the disk cache.
    async fn rename(&self, in_force: Option<Found>, remote_rules: bool) {
        let Some(in_force) = in_force else { return };
        if remote_rules == (in_force.origin != Origin::Local) {
            self.ledger.named(in_force.origin, in_force.document.name(), &in_force.version);
        }
        self.keep(&in_force).await;
    }

    /// Tries the pending documents.
    async fn settle(&self, sides: &mut Sides) {
        let Sides { local, remote, is_down } = sides;
        if *is_down {
            match self.attempt(local.newest(), None).await {
                Ok(()) => {
                    local.settle();
                    self.record(sides, Origin::Local).await;
                }
                Err(what) => self.blame(local, Origin::Local, &what),
            }
            return;
        }
        let both = match self.attempt(local.newest(), remote.newest()).await {
            Ok(()) => {
                let changed = if remote.pending.is_some() { Origin::Remote } else { Origin::Local };
                self.settled_side(local, Origin::Local);
                self.settled_side(remote, Origin::Remote);
                self.record(sides, changed).await;
                return;
            }
            Err(what) => what,
        };
        match (local.pending.is_some(), remote.pending.is_some()) {
            (true, false) => self.blame(local, Origin::Local, &both),
            (false, true) => self.blame(remote, Origin::Remote, &both),
            _ => {
                let with_old_local = self.attempt(local.in_force.as_ref(), remote.newest()).await;
                let Err(remotes) = with_old_local else {
                    self.settled_side(remote, Origin::Remote);
                    self.blame(local, Origin::Local, &both);
                    self.record(sides, Origin::Remote).await;
                    return;
                };
                let with_old_remote = self.attempt(local.newest(), remote.in_force.as_ref()).await;
                self.blame(remote, Origin::Remote, &remotes);
                match with_old_remote {
                    Ok(()) => {
                        self.settled_side(local, Origin::Local);
                        self.record(sides, Origin::Local).await;
                    }
                    Err(locals) => self.blame(local, Origin::Local, &locals),
                }
            }
        }
    }

    /// Marks the pending document of a source as applied.
    fn settled_side(&self, side: &mut SourceState, origin: Origin) {
        side.settle();
        self.ledger.resolved(origin, Wrong::Document);
    }

    fn blame(&self, side: &mut SourceState, origin: Origin, what: &str) {
        if !side.told {
            self.ledger.error(origin, Wrong::Document, what);
            side.told = true;
        }
    }

    /// Records the active document, and keeps a new remote document on disk.
    async fn record(&self, sides: &Sides, changed: Origin) {
        let Some(rules) = sides.rules() else { return };
        self.ledger.loaded(rules.origin, rules.document.name(), &rules.version);
        if changed == Origin::Remote {
            self.keep(rules).await;
        }
    }

    async fn keep(&self, found: &Found) {
        if found.origin != Origin::Remote {
            return;
        }
        let Some(kept) = &self.kept else { return };
        match kept.write(found).await {
            Ok(()) => self.ledger.resolved(Origin::LastGood, Wrong::Source),
            Err(what) => {
                self.ledger.error(Origin::LastGood, Wrong::Source, &what);
            }
        }
    }

    /// Applies these documents on a thread that may block.
    async fn attempt(&self, local: Option<&Found>, remote: Option<&Found>) -> Result<(), String> {
        let document = |found: Option<&Found>| found.map(|found| Arc::clone(&found.document));
        let (local, remote) = (document(local), document(remote));
        let apply = Arc::clone(&self.apply);
        let applied = tokio::task::spawn_blocking(move || apply.apply(local.as_deref(), remote.as_deref())).await;
        match applied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problems)) => Err(problems.to_string()),
            Err(_) => Err("the check of this document panicked; please report it".to_owned()),
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").finish_non_exhaustive()
    }
}
