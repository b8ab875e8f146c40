//! Receives the documents of all sources; the only place that applies them.
//!
//! A source offers a document and continues: only its newest offer is stored, so that a source that changes constantly
//! costs no memory and a few checks per second. The coordinator then tries the newest documents of both sources; if
//! they are rejected, it tries each with the active document of the other source, so that an invalid local edit does not
//! block a remote change, or vice versa. A rejected document stays pending: it may become valid when the other source
//! changes.
//!
//! With `when_down: local`, the config server's document is applied only while the config server is reachable.
//! Otherwise it is held in memory.

use super::Apply;
use super::disk_cache::DiskCache;
use super::status::{ErrorKind, Origin, SourceError, StatusLog};
use crate::WhenRemoteIsDown;
use diana_rules::Document;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The minimum time between two applied documents.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// A document of a source.
#[derive(Clone, Debug)]
pub(super) struct SourceDocument {
    pub(super) origin: Origin,
    pub(super) document: Arc<Document>,
    /// The version as the source reports it.
    pub(super) version: String,
}

impl SourceDocument {
    /// Creates a document whose version is its hash.
    pub(super) fn hashed(origin: Origin, document: Document) -> Self {
        let version = hex(&Sha256::digest(document.text())).get(..12).unwrap_or_default().to_owned();
        Self { origin, document: Arc::new(document), version }
    }

    /// Returns the source of the document; a document from the disk cache belongs to the config server.
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
struct SourceStates {
    local: SourceState,
    remote: SourceState,
    /// Whether the local rules apply, because the config server is unreachable.
    is_down: bool,
}

impl SourceStates {
    /// Returns the document whose rules are active.
    fn rules(&self) -> Option<&SourceDocument> {
        self.remote.active.as_ref().filter(|_| !self.is_down).or(self.local.active.as_ref())
    }
}

/// The state of one source.
#[derive(Debug, Default)]
struct SourceState {
    active: Option<SourceDocument>,
    /// A newer document that has not been tried yet or was rejected.
    pending: Option<SourceDocument>,
    /// Whether the rejection of the pending document has been reported.
    is_reported: bool,
}

impl SourceState {
    fn newest(&self) -> Option<&SourceDocument> {
        self.pending.as_ref().or(self.active.as_ref())
    }

    /// Marks the pending document as applied.
    fn mark_applied(&mut self) {
        if let Some(applied) = self.pending.take() {
            self.active = Some(applied);
        }
        self.is_reported = false;
    }
}

/// See the [module](self).
pub(super) struct Coordinator {
    apply: Arc<dyn Apply>,
    disk_cache: Option<DiskCache>,
    when_down: WhenRemoteIsDown,
    status_log: Arc<StatusLog>,
    offers: Mutex<Mailbox>,
    wake: Notify,
    /// The number of offers that have been processed.
    settled: watch::Sender<u64>,
    states: tokio::sync::Mutex<SourceStates>,
}

/// Offers that have not been processed yet.
#[derive(Default)]
struct Mailbox {
    local: Option<SourceDocument>,
    remote: Option<SourceDocument>,
    /// Whether the config server is unreachable, if that has changed.
    is_down: Option<bool>,
    count: u64,
}

impl Coordinator {
    pub(super) fn new(
        apply: Arc<dyn Apply>,
        disk_cache: Option<DiskCache>,
        when_down: WhenRemoteIsDown,
        status_log: Arc<StatusLog>,
    ) -> Self {
        let states = tokio::sync::Mutex::default();
        Self {
            apply,
            disk_cache,
            when_down,
            status_log,
            offers: Mutex::default(),
            wake: Notify::new(),
            settled: watch::Sender::new(0),
            states,
        }
    }

    pub(super) fn status_log(&self) -> &StatusLog {
        &self.status_log
    }

    /// Applies the first documents: the remote one, else the one from the disk cache, else the local one alone.
    pub(super) async fn open(
        &self,
        local: Option<SourceDocument>,
        remote: Option<SourceDocument>,
        failures: &mut Vec<SourceError>,
    ) -> Result<(), ()> {
        let mut states = self.states.lock().await;
        if let Some(remote) = &remote {
            match self.attempt(local.as_ref(), Some(remote)).await {
                Ok(()) => {
                    states.local.active = local;
                    states.remote.active = Some(remote.clone());
                    self.record(&states, Origin::Remote).await;
                    return Ok(());
                }
                Err(what) => failures.push(self.record_rejection(Origin::Remote, &what)),
            }
        }
        // Rejected now, it may be valid with another local file.
        states.remote.pending = remote;
        states.remote.is_reported = true;
        if let Some(disk_cache) = &self.disk_cache {
            let tried = match disk_cache.read().await {
                Ok(Some(cached)) => self.attempt(local.as_ref(), Some(&cached)).await.map(|()| Some(cached)),
                Ok(None) => Ok(None),
                Err(what) => Err(what),
            };
            match tried {
                Ok(Some(cached)) => {
                    states.local.active = local;
                    states.remote.active = Some(cached);
                    self.record(&states, Origin::LastGood).await;
                    return Ok(());
                }
                Ok(None) => {}
                Err(what) => failures.push(self.status_log.error(Origin::LastGood, ErrorKind::Source, &what)),
            }
        }
        let Some(local) = local else { return Err(()) };
        match self.attempt(Some(&local), None).await {
            Ok(()) => {
                states.local.active = Some(local);
                self.record(&states, Origin::Local).await;
                Ok(())
            }
            Err(what) => {
                failures.push(self.record_rejection(Origin::Local, &what));
                Err(())
            }
        }
    }

    /// Stores a document of a source; replaces an older offer that has not been processed.
    pub(super) fn offer(&self, offered: SourceDocument) {
        let mut offers = self.offers.lock();
        offers.count += 1;
        match offered.origin {
            Origin::Local => offers.local = Some(offered),
            Origin::Remote | Origin::LastGood => offers.remote = Some(offered),
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
            let mut states = self.states.lock().await;
            let reachability_changed =
                is_down.is_some_and(|is_down| is_down != states.is_down) && states.remote.newest().is_some();
            states.is_down = is_down.unwrap_or(states.is_down);
            let changed = [self.store_offer(&mut states, local).await, self.store_offer(&mut states, remote).await];
            if reachability_changed || changed.contains(&true) {
                self.apply_pending(&mut states).await;
                drop(states);
                self.settled.send_replace(count);
                let next = Instant::now() + MIN_INTERVAL;
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
    async fn store_offer(&self, states: &mut SourceStates, offered: Option<SourceDocument>) -> bool {
        let Some(offered) = offered else { return false };
        let uses_remote = states.remote.active.is_some() && !states.is_down;
        let state = if offered.origin == Origin::Local { &mut states.local } else { &mut states.remote };
        if let Some(active) = state.active.as_mut().filter(|active| active.is_same_as(&offered)) {
            let version_changed = active.version != offered.version || active.origin != offered.origin;
            *active = offered;
            state.pending = None;
            state.is_reported = false;
            self.status_log.resolved(active.source(), ErrorKind::Document);
            if version_changed {
                let active = state.active.clone();
                self.record_version(active, uses_remote).await;
            }
            return false;
        }
        if let Some(pending) = state.pending.as_mut().filter(|pending| pending.is_same_as(&offered)) {
            // It was rejected before, or will be tried with the other source's offer.
            *pending = offered;
            return false;
        }
        state.pending = Some(offered);
        state.is_reported = false;
        true
    }

    /// Records the same text with another version, or from the config server instead of the disk cache.
    async fn record_version(&self, active: Option<SourceDocument>, uses_remote: bool) {
        let Some(active) = active else { return };
        if uses_remote == (active.origin != Origin::Local) {
            self.status_log.renamed(active.origin, active.document.name(), &active.version);
        }
        self.write_disk_cache(&active).await;
    }

    /// Tries the pending documents.
    async fn apply_pending(&self, states: &mut SourceStates) {
        let SourceStates { local, remote, is_down } = states;
        if *is_down {
            match self.attempt(local.newest(), None).await {
                Ok(()) => {
                    self.accept(local, Origin::Local);
                    self.record(states, Origin::Local).await;
                }
                Err(what) => self.reject(local, Origin::Local, &what),
            }
            return;
        }
        let error = match self.attempt(local.newest(), remote.newest()).await {
            Ok(()) => {
                let changed = if remote.pending.is_some() { Origin::Remote } else { Origin::Local };
                self.accept(local, Origin::Local);
                self.accept(remote, Origin::Remote);
                self.record(states, changed).await;
                return;
            }
            Err(what) => what,
        };
        match (local.pending.is_some(), remote.pending.is_some()) {
            (true, false) => self.reject(local, Origin::Local, &error),
            (false, true) => self.reject(remote, Origin::Remote, &error),
            _ => {
                let with_old_local = self.attempt(local.active.as_ref(), remote.newest()).await;
                let Err(remote_error) = with_old_local else {
                    self.accept(remote, Origin::Remote);
                    self.reject(local, Origin::Local, &error);
                    self.record(states, Origin::Remote).await;
                    return;
                };
                let with_old_remote = self.attempt(local.newest(), remote.active.as_ref()).await;
                self.reject(remote, Origin::Remote, &remote_error);
                match with_old_remote {
                    Ok(()) => {
                        self.accept(local, Origin::Local);
                        self.record(states, Origin::Local).await;
                    }
                    Err(local_error) => self.reject(local, Origin::Local, &local_error),
                }
            }
        }
    }

    /// Marks the pending document of a source as applied.
    fn accept(&self, state: &mut SourceState, origin: Origin) {
        state.mark_applied();
        self.status_log.resolved(origin, ErrorKind::Document);
    }

    fn reject(&self, state: &mut SourceState, origin: Origin, what: &str) {
        if !state.is_reported {
            self.record_rejection(origin, what);
            state.is_reported = true;
        }
    }

    fn record_rejection(&self, origin: Origin, what: &str) -> SourceError {
        let error = self.status_log.error(origin, ErrorKind::Document, what);
        self.apply.rejected(&error);
        error
    }

    /// Records the active document, and writes a new remote document to the disk cache.
    async fn record(&self, states: &SourceStates, changed: Origin) {
        let Some(rules) = states.rules() else { return };
        self.status_log.loaded(rules.origin, rules.document.name(), &rules.version, self.apply.rule_count());
        self.apply.loaded(rules.origin, rules.document.name());
        if changed == Origin::Remote {
            self.write_disk_cache(rules).await;
        }
    }

    async fn write_disk_cache(&self, document: &SourceDocument) {
        if document.origin != Origin::Remote {
            return;
        }
        let Some(disk_cache) = &self.disk_cache else { return };
        match disk_cache.write(document).await {
            Ok(()) => self.status_log.resolved(Origin::LastGood, ErrorKind::Source),
            Err(what) => {
                self.status_log.error(Origin::LastGood, ErrorKind::Source, &what);
            }
        }
    }

    /// Applies these documents on a thread that may block.
    async fn attempt(&self, local: Option<&SourceDocument>, remote: Option<&SourceDocument>) -> Result<(), String> {
        let document = |source: Option<&SourceDocument>| source.map(|source| Arc::clone(&source.document));
        let (local, remote) = (document(local), document(remote));
        let apply = Arc::clone(&self.apply);
        let applied = tokio::task::spawn_blocking(move || apply.apply(local.as_deref(), remote.as_deref())).await;
        match applied {
            Ok(Ok(())) => Ok(()),
            Ok(Err(problems)) => Err(problems.to_string()),
            Err(_) => Err("the check of this document panicked, which is a bug in Diana; please report it".to_owned()),
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coordinator").finish_non_exhaustive()
    }
}
