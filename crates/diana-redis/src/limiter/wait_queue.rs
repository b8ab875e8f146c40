//! Queues of one process's callers that wait for the same key, first in, first out.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};

/// The maximum number of waiting callers, over all keys.
const MOST_WAITING: usize = 10_000;

/// One queue for each key with waiting callers.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    lines: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    of_key: HashMap<Vec<u8>, (Arc<Turns<()>>, usize)>,
    all: usize,
}

/// The first place in a queue.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    _first: OwnedMutexGuard<()>,
    _place: Place<'a>,
}

/// A place in a queue.
#[derive(Debug)]
struct Place<'a> {
    lines: &'a WaitQueues,
    key: &'a [u8],
}

impl WaitQueues {
    /// Waits to be the first for `key`, at most for `max_wait`. Returns `None` if that is too short, or the queue is
    /// full.
    pub(super) async fn join<'a>(&'a self, key: &'a [u8], max_wait: Duration) -> Option<Turn<'a>> {
        let line = {
            let mut lines = self.lines.lock();
            if lines.all >= MOST_WAITING {
                return None;
            }
            lines.all += 1;
            let (line, waiting) = lines.of_key.entry(key.to_vec()).or_default();
            *waiting += 1;
            Arc::clone(line)
        };
        let place = Place { lines: self, key };
        // tokio's mutex is fair: first in, first out.
        let first = tokio::time::timeout(max_wait, line.lock_owned()).await.ok()?;
        Some(Turn { _first: first, _place: place })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut lines = self.lines.lines.lock();
        lines.all -= 1;
        if let Some((_, waiting)) = lines.of_key.get_mut(self.key) {
            *waiting -= 1;
            if *waiting == 0 {
                lines.of_key.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_one_gets_its_turn_when_the_first_leaves() {
        let lines = WaitQueues::default();
        let first = lines.join(b"x", Duration::ZERO).await.unwrap();
        assert!(lines.join(b"x", Duration::from_secs(1)).await.is_none());
        assert!(lines.join(b"y", Duration::ZERO).await.is_some());
        let next = lines.join(b"x", Duration::from_secs(9));
        tokio::pin!(next);
        assert!(poll_once(next.as_mut()).await.is_none());
        drop(first);
        assert!(next.await.is_some());
        let waiting = lines.lines.lock();
        assert_eq!((waiting.all, waiting.of_key.len()), (0, 0));
    }

    /// Polls once.
    async fn poll_once<T>(mut future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        std::future::poll_fn(|context| {
            std::task::Poll::Ready(match future.as_mut().poll(context) {
                std::task::Poll::Ready(value) => Some(value),
                std::task::Poll::Pending => None,
            })
        })
        .await
    }
}
