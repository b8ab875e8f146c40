//! The memory that the clients of all connections may use together: `bounds.memory`.

use std::cmp;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory that clients use, of the gateway over HTTP/2 and of the services. What would exceed the bound is refused.
///
/// ```
/// use diana_net::TotalMemory;
/// use std::sync::Arc;
///
/// let total = Arc::new(TotalMemory::new(100));
/// let mut message = total.reserve(60).unwrap();
/// assert!(total.reserve(50).is_none() && !message.resize(101));
/// assert!(message.resize(50) && total.reserve(50).is_some());
/// ```
#[derive(Debug)]
pub struct TotalMemory {
    used: AtomicUsize,
    max: usize,
}

/// Memory that counts until this is dropped.
#[derive(Debug)]
pub struct ReservedMemory {
    total: Arc<TotalMemory>,
    bytes: usize,
}

impl TotalMemory {
    /// Creates a bound of this many bytes.
    pub fn new(max: usize) -> Self {
        Self { used: AtomicUsize::new(0), max }
    }

    /// Reserves memory, if enough is left.
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Option<ReservedMemory> {
        self.try_add(bytes).then(|| ReservedMemory { total: Arc::clone(self), bytes })
    }

    /// Counts more, if enough is left.
    pub fn try_add(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.max);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Counts more, even over the bound.
    pub fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts less.
    pub fn subtract(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns how much is counted.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl ReservedMemory {
    /// Reserves nothing yet.
    pub fn none(total: &Arc<TotalMemory>) -> Self {
        Self { total: Arc::clone(total), bytes: 0 }
    }

    /// Changes how much is reserved. Returns `false`, and changes nothing, if not enough is left.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let is_left = match bytes.cmp(&self.bytes) {
            // The counter is not written for nothing: all threads share it.
            cmp::Ordering::Equal => true,
            cmp::Ordering::Greater => self.total.try_add(bytes - self.bytes),
            cmp::Ordering::Less => {
                self.total.subtract(self.bytes - bytes);
                true
            }
        };
        if is_left {
            self.bytes = bytes;
        }
        is_left
    }
}

impl Drop for ReservedMemory {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.total.subtract(self.bytes);
        }
    }
}
