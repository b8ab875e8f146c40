//! Lines of those who wait, one for each key that somebody waits for.

use crate::sync::{AtomicUsize, Mutex, Ordering};
use std::collections::{HashMap, VecDeque};
use std::task::Waker;

/// How many groups the keys are in, by the highest bits of their hashes.
const GROUPS: usize = 64;
const GROUP_SHIFT: u32 = 58;

/// The lines before the keys of one limit, or of many. Bounded: whoever finds them full is turned away.
///
/// For those who build something like a limiter themselves; a limiter has its own.
#[derive(Debug)]
pub struct WaitQueues {
    /// How many wait, over all keys; read without the lock, since most of the time it is nobody.
    waiting: AtomicUsize,
    /// The same for each group of keys, so that whoever waits for one key costs few others a look at its line.
    by_group: Box<[AtomicUsize]>,
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next_ticket: u64,
    by_key: HashMap<u64, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Waiter {
    ticket: u64,
    waker: Waker,
}

impl WaitQueues {
    /// Lines for at most `most` waiters in all.
    pub fn new(most: usize) -> Self {
        let by_group = (0..GROUPS).map(|_| AtomicUsize::new(0)).collect();
        Self { waiting: AtomicUsize::new(0), by_group, most, inner: Mutex::new(Inner::default()) }
    }

    /// The same, empty, with another bound.
    pub(crate) fn bounded(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// How many wait, over all keys.
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether nobody waits for anything.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether somebody waits for `key`.
    #[inline(always)]
    pub fn has_waiters(&self, key: u64) -> bool {
        !self.is_empty() && self.waits_for(key)
    }

    #[cold]
    fn waits_for(&self, key: u64) -> bool {
        self.group(key).load(Ordering::Acquire) != 0 && self.inner.lock().by_key.contains_key(&key)
    }

    fn group(&self, key: u64) -> &AtomicUsize {
        &self.by_group[(key >> GROUP_SHIFT) as usize % GROUPS]
    }

    /// Stands at the end of the line: the ticket, and whether this is the first. `None` if the lines are full.
    pub fn join(&self, key: u64, waker: &Waker) -> Option<(u64, bool)> {
        self.join_up_to(usize::MAX, key, waker)
    }

    /// The same, if fewer than `most` stand in the line of this very key.
    pub fn join_up_to(&self, most: usize, key: u64, waker: &Waker) -> Option<(u64, bool)> {
        let waker = waker.clone();
        let mut inner = self.inner.lock();
        let is_full = inner.by_key.get(&key).map_or(0, VecDeque::len) >= most;
        if is_full || self.waiting.load(Ordering::Acquire) >= self.most {
            drop(inner);
            return None;
        }
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.group(key).fetch_add(1, Ordering::AcqRel);
        let ticket = inner.next_ticket;
        inner.next_ticket += 1;
        let line = inner.by_key.entry(key).or_default();
        line.push_back(Waiter { ticket, waker });
        Some((ticket, line.len() == 1))
    }

    /// Says whom to wake; tells whether this is the first in line.
    pub(crate) fn leave_waker(&self, key: u64, ticket: u64, waker: &Waker) -> bool {
        // Wakers are somebody else's code, and dropping one may lead back here: never under the lock.
        let mut waker = waker.clone();
        let mut inner = self.inner.lock();
        let Some(line) = inner.by_key.get_mut(&key) else { return false };
        if let Ok(place) = line.binary_search_by_key(&ticket, |waiter| waiter.ticket) {
            std::mem::swap(&mut line[place].waker, &mut waker);
        }
        let is_first = line.front().is_some_and(|first| first.ticket == ticket);
        drop(inner);
        is_first
    }

    /// Whether this is the first in line.
    pub fn is_first(&self, key: u64, ticket: u64) -> bool {
        let inner = self.inner.lock();
        inner.by_key.get(&key).and_then(VecDeque::front).is_some_and(|first| first.ticket == ticket)
    }

    /// Leaves the line; if this was the first, the next one is woken.
    pub fn leave(&self, key: u64, ticket: u64) {
        let (_left, next) = {
            let mut inner = self.inner.lock();
            let Some(line) = inner.by_key.get_mut(&key) else { return };
            let Ok(place) = line.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return };
            // Dropped when the lock is free again.
            let left = line.remove(place);
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            self.group(key).fetch_sub(1, Ordering::AcqRel);
            let next = line.front().filter(|_| place == 0).map(|first| first.waker.clone());
            if line.is_empty() {
                inner.by_key.remove(&key);
            }
            (left, next)
        };
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Wakes the first in line: something has changed.
    pub fn wake(&self, key: u64) {
        if self.is_empty() {
            return;
        }
        let first = self.inner.lock().by_key.get(&key).and_then(|line| line.front()).map(|first| first.waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Wakes the first of every line: the limits themselves have changed.
    pub fn wake_all(&self) {
        let inner = self.inner.lock();
        let firsts: Vec<_> = inner.by_key.values().filter_map(VecDeque::front).map(|w| w.waker.clone()).collect();
        drop(inner);
        firsts.into_iter().for_each(Waker::wake);
    }
}
