//! Waiting for what another process does: it can't be told of our clock, so it is asked again and again.

use std::io;
use std::time::Duration;

/// Far longer than anything here takes, also on a busy machine: who waits this long waits for what will not come.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// How long between two questions: short beside what a server takes to start.
const PAUSE: Duration = Duration::from_millis(10);

/// Asks until there is an answer, and gives it; an error that names `what` if there is none within `limit`.
///
/// ```
/// use std::time::Duration;
/// let mut asked = 0;
/// let answer = diana_testing::wait_until("the third time", Duration::from_secs(1), || {
///     asked += 1;
///     (asked == 3).then_some(asked)
/// });
/// assert_eq!(answer?, 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[allow(clippy::disallowed_methods, reason = "other processes live in real time, and tell nobody when they are done")]
pub fn wait_until<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> io::Result<T> {
    let start = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return Ok(answer);
        }
        if start.elapsed() >= limit {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("waited {limit:?} in vain for {what}")));
        }
        std::thread::sleep(PAUSE);
    }
}
