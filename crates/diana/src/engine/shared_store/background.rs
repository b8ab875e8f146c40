//! Background tasks that outlive their request: in-flight queries of the shared store, and refunds.
//!
//! They run in a runtime that outlives the request's, if possible: the one in which the engine was created, unless it
//! is single-threaded and so may not be running.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio_util::task::TaskTracker;

/// Spawns and tracks background tasks.
#[derive(Debug)]
pub(in crate::engine) struct Background {
    /// The runtime in which the engine was created.
    created_in: Option<Handle>,
    tasks: TaskTracker,
}

impl Background {
    pub(in crate::engine) fn new() -> Self {
        let tasks = TaskTracker::new();
        // A closed tracker accepts tasks, too; but only a closed one can be waited for.
        tasks.close();
        Self { created_in: Handle::try_current().ok(), tasks }
    }

    /// Returns the runtime for background tasks, if there is one.
    pub(in crate::engine) fn runtime(&self) -> Option<Handle> {
        let outlives = |runtime: &&Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let current = || Handle::try_current().ok();
        self.created_in.as_ref().filter(outlives).cloned().or_else(current).or_else(|| self.created_in.clone())
    }

    /// Spawns a tracked task. Returns it unchanged if there is no runtime.
    pub(in crate::engine) fn spawn<W: Future<Output = ()> + Send + 'static>(&self, work: W) -> Result<(), W> {
        let Some(runtime) = self.runtime() else { return Err(work) };
        self.tasks.spawn_on(work, &runtime);
        Ok(())
    }

    /// Runs work that must not end halfway: dropping the future does not cancel it. Without a runtime, the caller runs it. Returns
    /// `None` if the runtime ends before the work.
    pub(in crate::engine) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (done, is_done) = tokio::sync::oneshot::channel();
        let work = async move {
            // The caller may have left.
            let _ = done.send(work.await);
        };
        if let Err(work) = self.spawn(work) {
            work.await;
        }
        is_done.await.ok()
    }

    /// Spawns an untracked task, which runs as long as it is needed.
    pub(in crate::engine) fn spawn_untracked(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(work);
        }
    }

    /// Waits until no tracked task is running.
    pub(in crate::engine) async fn finished(&self) {
        self.tasks.wait().await;
    }
}
