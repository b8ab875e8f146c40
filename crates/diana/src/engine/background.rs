//! Background tasks that outlive their request: in-flight queries of the shared store, and refunds.
//!
//! They run in a runtime that outlives the request's, if possible: the one in which the engine was created, unless it
//! is single-threaded and so may not be running.

#[cfg(feature = "wait")]
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
};

/// Spawns and tracks background tasks.
#[derive(Debug)]
pub(super) struct Background {
    /// The runtime in which the engine was created.
    #[cfg(feature = "wait")]
    made_in: Option<Handle>,
    /// The number of running tasks.
    #[cfg(feature = "wait")]
    under_way: watch::Sender<usize>,
}

impl Background {
    pub(super) fn new() -> Self {
        Self {
            #[cfg(feature = "wait")]
            made_in: Handle::try_current().ok(),
            #[cfg(feature = "wait")]
            under_way: watch::Sender::new(0),
        }
    }
}

#[cfg(feature = "wait")]
impl Background {
    /// Returns the runtime for background tasks, if there is one.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let outlives = |runtime: &&Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let current = || Handle::try_current().ok();
        self.made_in.as_ref().filter(outlives).cloned().or_else(current).or_else(|| self.made_in.clone())
    }

    /// Spawns a tracked task. Returns it unchanged if there is no runtime.
    pub(super) fn carry_out<W: Future<Output = ()> + Send + 'static>(&self, work: W) -> Result<(), W> {
        let Some(runtime) = self.runtime() else { return Err(work) };
        let one = One::of(&self.under_way);
        runtime.spawn(async move {
            let _one = one;
            work.await;
        });
        Ok(())
    }

    /// Spawns an untracked task, which runs as long as it is needed.
    pub(super) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(work);
        }
    }

    /// Waits until no task is running.
    pub(super) async fn done(&self) {
        // It fails only if the sender is dropped, and `self` owns it.
        let _ = self.under_way.subscribe().wait_for(|under_way| *under_way == 0).await;
    }
}

/// One task; dropping this marks it as done, whether it finished or was cancelled with its runtime.
#[cfg(feature = "wait")]
struct One(watch::Sender<usize>);

#[cfg(feature = "wait")]
impl One {
    fn of(under_way: &watch::Sender<usize>) -> Self {
        under_way.send_modify(|under_way| *under_way += 1);
        Self(under_way.clone())
    }
}

#[cfg(feature = "wait")]
impl Drop for One {
    fn drop(&mut self) {
        self.0.send_modify(|under_way| *under_way -= 1);
    }
}
