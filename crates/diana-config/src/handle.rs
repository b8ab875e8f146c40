//! The handle of watched sources.

use super::coordinator::Coordinator;
use super::file::LocalFile;
use super::remote_watcher::RemoteWatcher;
use super::status::{SourceStatus, StatusLog};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// Asks a source to poll now; it answers once it has sent its document to the coordinator.
pub(super) type PollNow = oneshot::Sender<()>;

/// Watches the sources until it is dropped or [stopped](Self::stop).
#[derive(Debug)]
pub struct WatchHandle {
    desk: Arc<Coordinator>,
    ledger: Arc<StatusLog>,
    looks: Vec<mpsc::Sender<PollNow>>,
    sources: JoinSet<()>,
    desk_stop: Arc<Notify>,
    desk_task: JoinHandle<()>,
}

impl WatchHandle {
    pub(super) fn new(
        desk: Arc<Coordinator>,
        ledger: Arc<StatusLog>,
        file: Option<LocalFile>,
        centre: Option<RemoteWatcher>,
    ) -> Self {
        let mut sources = JoinSet::new();
        let mut looks = Vec::new();
        let mut channel = || {
            let (sender, receiver) = mpsc::channel(1);
            looks.push(sender);
            receiver
        };
        if let Some(file) = file {
            sources.spawn(file.follow(Arc::clone(&desk), channel()));
        }
        if let Some(centre) = centre {
            sources.spawn(centre.follow(Arc::clone(&desk), channel()));
        }
        let desk_stop = Arc::new(Notify::new());
        let desk_task = tokio::spawn({
            let (desk, stop) = (Arc::clone(&desk), Arc::clone(&desk_stop));
            async move { desk.run(&stop).await }
        });
        Self { desk, ledger, looks, sources, desk_stop, desk_task }
    }

    /// Returns the active document and the last error.
    pub fn status(&self) -> SourceStatus {
        self.ledger.status()
    }

    /// Polls every source now, and returns when the documents were applied or rejected, or the poll has failed.
    ///
    /// For SIGHUP and the admin API; changes are found without it.
    pub async fn reload(&self) {
        let mut answers = Vec::new();
        for looks in &self.looks {
            let (look, answer) = oneshot::channel();
            if looks.send(look).await.is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            // An error means that the source's task has ended during shutdown.
            let _ = answer.await;
        }
        self.desk.settled().await;
    }

    /// Stops watching. The active rules stay; no document is applied after this returns.
    pub async fn stop(mut self) {
        self.sources.shutdown().await;
        self.desk_stop.notify_one();
        // An error means that the task panicked, which has been logged.
        let _ = (&mut self.desk_task).await;
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        // Dropping the `JoinSet` aborts the sources.
        self.desk_task.abort();
    }
}
