//! Blocks on a future, in a function that is not async.

use crate::limited::Cause;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Blocks this thread until `future` is ready. `working` is the runtime that drives it.
///
/// Both that runtime and the caller's must be multi-threaded: a single-threaded one may depend on this thread, which
/// would be a deadlock.
pub(super) fn on<T>(working: Option<&Handle>, future: impl Future<Output = T>) -> Result<T, Cause> {
    let has_threads = |runtime: &Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    let working = working.ok_or(Cause::NoRuntime)?;
    match Handle::try_current() {
        _ if !has_threads(working) => Err(Cause::WouldBlock),
        Ok(here) if !has_threads(&here) => Err(Cause::WouldBlock),
        // Other threads take over this thread's tasks.
        Ok(here) => Ok(tokio::task::block_in_place(|| here.block_on(future))),
        Err(_) => Ok(working.block_on(future)),
    }
}
