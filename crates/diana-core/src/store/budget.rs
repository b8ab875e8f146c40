//! A ceiling on memory that many tables share.

use crate::sync::{AtomicUsize, Ordering};

/// How many bytes of keys' states there may be, and how many there are.
#[derive(Debug)]
pub(crate) struct Budget {
    ceiling: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(ceiling: usize) -> Self {
        Self { ceiling, used: AtomicUsize::new(0) }
    }

    /// Takes `bytes`, if they stay under the ceiling.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        self.used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.ceiling)
            })
            .is_ok()
    }

    /// Takes `bytes` that are in use already, over the ceiling or not; tells whether they stay under it.
    pub(crate) fn record(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) <= self.ceiling
    }

    /// Gives `bytes` back.
    pub(crate) fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}
