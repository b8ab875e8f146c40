//! A memory bound that several tables share.

use crate::sync::{AtomicUsize, Ordering};

/// The memory bound for keys' states, and the memory in use.
#[derive(Debug)]
pub(crate) struct Budget {
    max_bytes: usize,
    /// With more than this in use, one request could reach the bound; `None` if it always could.
    max_ample: Option<usize>,
    used: AtomicUsize,
    /// 1 after a reservation failed, until an eighth is free.
    short: AtomicUsize,
}

impl Budget {
    pub(crate) fn new(max_bytes: usize) -> Self {
        let max_ample = max_bytes.checked_sub((max_bytes / 16).max(64 << 10));
        Self { max_bytes, max_ample, used: AtomicUsize::new(0), short: AtomicUsize::new(0) }
    }

    /// Reserves `bytes` if they fit within the bound.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes)
        });
        if taken.is_err() {
            self.short.store(1, Ordering::Relaxed);
        }
        taken.is_ok()
    }

    /// Returns `true` if `bytes` would fit within the bound. If not, tables should release unneeded memory.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.used.load(Ordering::Acquire).checked_add(bytes).is_some_and(|sum| sum <= self.max_bytes);
        if !fits {
            self.short.store(1, Ordering::Relaxed);
        }
        fits
    }

    /// Returns `true` if a recent reservation failed: tables should release unneeded memory.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) == 1
    }

    /// Returns `true` if one request could reach the bound: less than a sixteenth, or less than 64 KiB, is free.
    #[inline]
    pub(crate) fn is_nearly_used_up(&self) -> bool {
        self.max_ample.is_none_or(|ample| self.used.load(Ordering::Relaxed) > ample)
    }

    /// Records `bytes` that are already in use, even over the bound; returns whether they fit within it.
    pub(crate) fn record(&self, bytes: usize) -> bool {
        self.used.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) <= self.max_bytes
    }

    /// Releases `bytes`.
    pub(crate) fn release(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::AcqRel).saturating_sub(bytes);
        if self.is_short() && used < self.max_bytes - self.max_bytes / 8 {
            self.short.store(0, Ordering::Relaxed);
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }
}
