//! The handle of watched sources.

use super::coordinator::Coordinator;
use super::file::LocalFile;
use super::remote_watcher::RemoteWatcher;
use super::status::{SourceStatus, StatusLog};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// Requests a poll of a source now; the source replies once it has sent its document to the coordinator.
pub(super) type PollNow = oneshot::Sender<()>;

/// Watches the sources until it is dropped or [stopped](Self::stop).
#[derive(Debug)]
pub struct WatchHandle {
    coordinator: Arc<Coordinator>,
    status_log: Arc<StatusLog>,
    polls: Vec<mpsc::Sender<PollNow>>,
    sources: JoinSet<()>,
    stop_coordinator: Arc<Notify>,
    coordinator_task: JoinHandle<()>,
}

impl WatchHandle {
    pub(super) fn new(
        coordinator: Arc<Coordinator>,
        status_log: Arc<StatusLog>,
        file: Option<LocalFile>,
        watcher: Option<RemoteWatcher>,
    ) -> Self {
        let mut sources = JoinSet::new();
        let mut polls = Vec::new();
        let mut channel = || {
            let (sender, receiver) = mpsc::channel(1);
            polls.push(sender);
            receiver
        };
        if let Some(file) = file {
            sources.spawn(file.run(Arc::clone(&coordinator), channel()));
        }
        if let Some(watcher) = watcher {
            sources.spawn(watcher.run(Arc::clone(&coordinator), channel()));
        }
        let stop_coordinator = Arc::new(Notify::new());
        let coordinator_task = tokio::spawn({
            let (coordinator, stop) = (Arc::clone(&coordinator), Arc::clone(&stop_coordinator));
            async move { coordinator.run(&stop).await }
        });
        Self { coordinator, status_log, polls, sources, stop_coordinator, coordinator_task }
    }

    /// Returns the active document and the last error.
    pub fn status(&self) -> SourceStatus {
        self.status_log.status()
    }

    /// Polls every source now, and returns when the documents were applied or rejected, or the poll has failed.
    ///
    /// For SIGHUP and the admin API; changes are found without it.
    pub async fn reload(&self) {
        let mut replies = Vec::new();
        for source in &self.polls {
            let (poll, reply) = oneshot::channel();
            if source.send(poll).await.is_ok() {
                replies.push(reply);
            }
        }
        for reply in replies {
            // An error means that the source's task has ended during shutdown.
            let _ = reply.await;
        }
        self.coordinator.settled().await;
    }

    /// Stops watching. The active rules stay; no document is applied after this returns.
    pub async fn stop(mut self) {
        self.sources.shutdown().await;
        self.stop_coordinator.notify_one();
        // An error means that the task panicked, which has been logged.
        let _ = (&mut self.coordinator_task).await;
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        // Dropping the `JoinSet` aborts the sources.
        self.coordinator_task.abort();
    }
}
