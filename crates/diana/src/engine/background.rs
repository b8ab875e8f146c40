//! Work that goes on when the request that it is for is over: what is under way in the shared store, and what goes back there.
//!
//! It runs in a runtime that outlives the request's, if there is one: the one that the engine was made in, unless that has no
//! threads of its own and so may stand still.

#[cfg(feature = "wait")]
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::watch,
};

/// Who carries out what nobody waits for.
#[derive(Debug)]
pub(super) struct Background {
    /// The runtime that the engine was made in.
    #[cfg(feature = "wait")]
    made_in: Option<Handle>,
    /// How much is under way.
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
    /// Where work is carried out; nowhere if there is no runtime.
    pub(super) fn runtime(&self) -> Option<Handle> {
        let outlives = |runtime: &&Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let current = || Handle::try_current().ok();
        self.made_in.as_ref().filter(outlives).cloned().or_else(current).or_else(|| self.made_in.clone())
    }

    /// Carries out some work, whoever is gone by then. Without a runtime it comes back as it is.
    pub(super) fn carry_out<W: Future<Output = ()> + Send + 'static>(&self, work: W) -> Result<(), W> {
        let Some(runtime) = self.runtime() else { return Err(work) };
        let one = One::of(&self.under_way);
        runtime.spawn(async move {
            let _one = one;
            work.await;
        });
        Ok(())
    }

    /// Starts what goes on for as long as somebody needs it; nobody waits for its end.
    pub(super) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = self.runtime() {
            runtime.spawn(work);
        }
    }

    /// Waits until nothing is under way.
    pub(super) async fn done(&self) {
        // It fails only if there is nobody who could tell, and that is us.
        let _ = self.under_way.subscribe().wait_for(|under_way| *under_way == 0).await;
    }
}

/// One piece of work, which is over when this is dropped: carried out, or thrown away with its runtime.
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
