//! Waiting for what only a runtime can bring, in a function that is not async.

use crate::limited::Cause;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Blocks this thread until `future` is ready. `working` is the runtime that brings it about.
///
/// Both that one and the one that the caller is in must have threads of their own: where there is only one thread, it may be this
/// one, and then nobody would ever go on.
pub(super) fn on<T>(working: Option<&Handle>, future: impl Future<Output = T>) -> Result<T, Cause> {
    let has_threads = |runtime: &Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    let working = working.ok_or(Cause::NoRuntime)?;
    match Handle::try_current() {
        _ if !has_threads(working) => Err(Cause::WouldBlock),
        Ok(here) if !has_threads(&here) => Err(Cause::WouldBlock),
        // Others take over this thread's tasks.
        Ok(here) => Ok(tokio::task::block_in_place(|| here.block_on(future))),
        Err(_) => Ok(working.block_on(future)),
    }
}
