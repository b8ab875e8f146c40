//! Waiting for what only a runtime can bring, in a function that is not async.

use crate::limited::Cause;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Blocks this thread until `future` is ready. `elsewhere` is a runtime whose threads go on meanwhile, for callers outside of
/// all.
pub(super) fn on<T>(elsewhere: Option<&Handle>, future: impl Future<Output = T>) -> Result<T, Cause> {
    match (Handle::try_current(), elsewhere) {
        (Ok(here), _) if here.runtime_flavor() == RuntimeFlavor::CurrentThread => Err(Cause::WouldBlock),
        // Others take over this thread's tasks.
        (Ok(here), _) => Ok(tokio::task::block_in_place(|| here.block_on(future))),
        (Err(_), Some(elsewhere)) => Ok(elsewhere.block_on(future)),
        (Err(_), None) => Err(Cause::NoRuntime),
    }
}
