//! Waiting for other processes: they don't share the test's clock, so conditions are polled.

use std::io;
use std::time::Duration;

/// Far longer than any wait in this crate takes, also on a busy machine: a longer wait would never succeed.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// The polling interval: short compared to the start of a server.
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until there is an answer, and returns it; an error that names `what` if there is none within `limit`.
///
/// ```
/// use std::time::Duration;
/// let mut calls = 0;
/// let answer = diana_testing::wait_until("the third call", Duration::from_secs(1), || {
///     calls += 1;
///     (calls == 3).then_some(calls)
/// });
/// assert_eq!(answer?, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[allow(clippy::disallowed_methods, reason = "other processes use real time and send no notification")]
pub fn wait_until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> io::Result<T> {
    let start = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if start.elapsed() >= limit {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("timed out after {limit:?} waiting for {what}"),
            ));
        }
        std::thread::sleep(PAUSE);
    }
}
