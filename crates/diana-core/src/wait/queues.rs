//! Queues of waiting requests, one for each key that has waiters.

use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// The number of groups of keys, by the highest bits of their hashes.
const GROUPS: usize = 64;
const GROUP_SHIFT: u32 = 58;

/// The wait queues of the keys of one or more limits. Bounded: if they are full, joining fails.
///
/// For code that implements its own limiter; [`Limiter`](crate::Limiter) has its own.
#[derive(Debug)]
pub struct WaitQueues {
    /// Waiters over all keys; read without the lock, since it is 0 most of the time.
    waiting: AtomicUsize,
    /// Waiters of each group of keys, so that a waiter of one key makes few other keys check their queue.
    by_group: Box<[AtomicUsize]>,
    max: usize,
    inner: Mutex<QueuedWaiters>,
}

#[derive(Debug, Default)]
struct QueuedWaiters {
    next_ticket: u64,
    by_key: HashMap<u64, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl WaitQueues {
    /// Creates queues for at max `max` waiters in all.
    pub fn new(max: usize) -> Self {
        let by_group = (0..GROUPS).map(|_| AtomicUsize::new(0)).collect();
        Self { waiting: AtomicUsize::new(0), by_group, max, inner: Mutex::new(QueuedWaiters::default()) }
    }

    /// Returns empty queues with another bound.
    pub(crate) fn with_max(self, max: usize) -> Self {
        Self { max, ..self }
    }

    /// Returns the number of waiters over all keys.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Returns `true` if there are no waiters.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if `key` has waiters.
    #[inline(always)]
    pub fn has_waiters(&self, key: u64) -> bool {
        !self.is_empty() && self.key_has_waiters(key)
    }

    #[cold]
    fn key_has_waiters(&self, key: u64) -> bool {
        self.group(key).load(Ordering::Acquire) != 0 && self.inner.lock().by_key.contains_key(&key)
    }

    fn group(&self, key: u64) -> &AtomicUsize {
        &self.by_group[(key >> GROUP_SHIFT) as usize % GROUPS]
    }

    /// Joins the queue at the tail: returns the ticket, and whether it is the head. `None` if the queues are full.
    pub fn join(&self, key: u64, waker: &Waker) -> Option<(u64, bool)> {
        self.join_up_to(usize::MAX, key, waker)
    }

    /// Joins like [`join`](Self::join), if the queue of `key` has fewer than `max` waiters.
    pub fn join_up_to(&self, max: usize, key: u64, waker: &Waker) -> Option<(u64, bool)> {
        let waker = waker.clone();
        let mut inner = self.inner.lock();
        let is_full = inner.by_key.get(&key).map_or(0, VecDeque::len) >= max;
        if is_full || self.waiting.load(Ordering::Acquire) >= self.max {
            drop(inner);
            return None;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.group(key).fetch_add(1, Ordering::AcqRel);
        let ticket = inner.next_ticket;
        inner.next_ticket += 1;
        let queue = inner.by_key.entry(key).or_default();
        queue.push_back(Waiter { ticket, waker });
        Some((ticket, queue.len() == 1))
    }

    /// Sets the waker of a ticket; returns whether it is the head of its queue.
    pub(crate) fn set_waker(&self, key: u64, ticket: u64, waker: &Waker) -> bool {
        // Wakers are foreign code, and dropping one may call into this module: never under the lock.
        let mut waker = waker.clone();
        let mut inner = self.inner.lock();
        let Some(queue) = inner.by_key.get_mut(&key) else { return false };
        if let Ok(index) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) {
            std::mem::swap(&mut queue[index].waker, &mut waker);
        }
        let is_first = queue.front().is_some_and(|first| first.ticket == ticket);
        drop(inner);
        is_first
    }

    /// Returns `true` if this ticket is the head of its queue.
    pub fn is_first(&self, key: u64, ticket: u64) -> bool {
        let inner = self.inner.lock();
        inner.by_key.get(&key).and_then(VecDeque::front).is_some_and(|first| first.ticket == ticket)
    }

    /// Leaves the queue; if this was the head, the next waiter is woken.
    pub fn leave(&self, key: u64, ticket: u64) {
        let (_removed, next) = {
            let mut inner = self.inner.lock();
            let Some(queue) = inner.by_key.get_mut(&key) else { return };
            let Ok(index) = queue.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
            // Dropped after the lock is released.
            let removed = queue.remove(index);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.group(key).fetch_sub(1, Ordering::AcqRel);
            let next = queue.front().filter(|_| index == 0).map(|first| first.waker.clone());
            if queue.is_empty() {
                inner.by_key.remove(&key);
            }
            (removed, next)
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Wakes the head of the queue after a change.
    pub fn wake(&self, key: u64) {
        if self.is_empty() {
            return;
        }
        let first = self.inner.lock().by_key.get(&key).and_then(|queue| queue.front()).map(|first| first.waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Wakes the head of every queue after a change of the limits.
    pub fn wake_all(&self) {
        let inner = self.inner.lock();
        let heads: Vec<_> = inner.by_key.values().filter_map(VecDeque::front).map(|w| w.waker.clone()).collect();
        drop(inner);
        heads.into_iter().for_each(Waker::wake);
    }
}
