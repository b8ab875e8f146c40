//! Sources that are being watched.

use super::coordinator::Coordinator;
use super::file::LocalFile;
use super::remote_watcher::RemoteWatcher;
use super::status::{SourceStatus, StatusLog};
use std::sync::Arc;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// Asks a source to look now; it answers once it has brought what it found to the desk.
pub(super) type PollNow = oneshot::Sender<()>;

/// Sources that are being watched, until this is dropped or [stopped](Self::stop).
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

    /// What is in force, and what went wrong last.
    pub fn status(&self) -> SourceStatus {
        self.ledger.status()
    }

    /// Looks at every source now, and returns when what was found is in force, or refused, or could not be had in time.
    ///
    /// For SIGHUP and the admin page; changes are found without it.
    pub async fn reload(&self) {
        let mut answers = Vec::new();
        for looks in &self.looks {
            let (look, answer) = oneshot::channel();
            if looks.send(look).await.is_ok() {
                answers.push(answer);
            }
        }
        for answer in answers {
            // An error means that the source has ended, with the program.
            let _ = answer.await;
        }
        self.desk.settled().await;
    }

    /// Ends all watching. What is in force stays; nothing is put in force after this returns.
    pub async fn stop(mut self) {
        self.sources.shutdown().await;
        self.desk_stop.notify_one();
        // An error means that it panicked, which its own task has told.
        let _ = (&mut self.desk_task).await;
    }
}

impl Drop for WatchHandle {
    fn drop(&mut self) {
        // The sources end with their set.
        self.desk_task.abort();
    }
}
