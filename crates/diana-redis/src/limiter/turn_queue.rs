//! Queues of one process's callers that wait for the same key, first in, first out.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex as FairMutex, OwnedMutexGuard};

/// The maximum number of waiting callers, over all keys.
const MAX_WAITING: usize = 10_000;

/// One queue for each key with waiting callers.
#[derive(Debug, Default)]
pub(super) struct TurnQueues {
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<Vec<u8>, (Arc<FairMutex<()>>, usize)>,
    all: usize,
}

/// The turn of the first caller in a queue, until it is dropped.
#[derive(Debug)]
pub(super) struct TurnGuard<'a> {
    _first: OwnedMutexGuard<()>,
    _guard: QueueGuard<'a>,
}

/// A caller in a queue, until it is dropped.
#[derive(Debug)]
struct QueueGuard<'a> {
    queues: &'a TurnQueues,
    key: &'a [u8],
}

impl TurnQueues {
    /// Waits to be the first for `key`, at most for `max_wait`. Returns `None` if that is too short, or the queue is full.
    pub(super) async fn join<'a>(&'a self, key: &'a [u8], max_wait: Duration) -> Option<TurnGuard<'a>> {
        let queue = {
            let mut queues = self.queues.lock();
            if queues.all >= MAX_WAITING {
                return None;
            }
            queues.all += 1;
            let (queue, waiting) = queues.by_key.entry(key.to_vec()).or_default();
            *waiting += 1;
            Arc::clone(queue)
        };
        let guard = QueueGuard { queues: self, key };
        // tokio's mutex is fair: first in, first out.
        let first = tokio::time::timeout(max_wait, queue.lock_owned()).await.ok()?;
        Some(TurnGuard { _first: first, _guard: guard })
    }
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.lock();
        queues.all -= 1;
        if let Some((_, waiting)) = queues.by_key.get_mut(self.key) {
            *waiting -= 1;
            if *waiting == 0 {
                queues.by_key.remove(self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_next_caller_gets_its_turn_when_the_first_leaves() {
        let queues = TurnQueues::default();
        let first = queues.join(b"x", Duration::ZERO).await.unwrap();
        assert!(queues.join(b"x", Duration::from_secs(1)).await.is_none());
        assert!(queues.join(b"y", Duration::ZERO).await.is_some());
        let next = queues.join(b"x", Duration::from_secs(9));
        tokio::pin!(next);
        assert!(poll_once(next.as_mut()).await.is_none());
        drop(first);
        assert!(next.await.is_some());
        let waiting = queues.queues.lock();
        assert_eq!((waiting.all, waiting.by_key.len()), (0, 0));
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
