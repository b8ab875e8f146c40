//! Blocks on a future, in a function that is not async.

use crate::limited::Cause;
use tokio::runtime::{Handle, RuntimeFlavor};

/// Blocks this thread until `future` is ready. `driver` is the runtime that drives it.
///
/// Both that runtime and the caller's must be multi-threaded: a single-threaded one may depend on this thread, which
/// would be a deadlock.
pub(super) fn block_on<T>(driver: Option<&Handle>, future: impl Future<Output = T>) -> Result<T, Cause> {
    let has_threads = |runtime: &Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    let driver = driver.ok_or(Cause::NoRuntime)?;
    match Handle::try_current() {
        _ if !has_threads(driver) => Err(Cause::WouldBlock),
        Ok(current) if !has_threads(&current) => Err(Cause::WouldBlock),
        // Other threads take over this thread's tasks.
        Ok(current) => Ok(tokio::task::block_in_place(|| current.block_on(future))),
        Err(_) => Ok(driver.block_on(future)),
    }
}
