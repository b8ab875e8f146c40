//! A memory bound that several tables share, and bounds within it.

use crate::sync::{Arc, AtomicUsize, Ordering};

/// The memory bound for keys' states, and the memory in use.
#[derive(Debug)]
pub(crate) struct Budget {
    max_bytes: usize,
    /// The use over which one request could reach the bound; `None` if it always could.
    max_ample: Option<usize>,
    used: AtomicUsize,
    /// Bit 0 is set after a reservation failed, until an eighth is free. The rest counts the parts for which it is.
    short: AtomicUsize,
    /// The number of parts that are nearly used up.
    tight_parts: AtomicUsize,
    /// The budget that this one is a part of: use of the part is use of the whole.
    whole: Option<Arc<Budget>>,
}

/// The bit of [`Budget::short`] for the budget itself, and what each part adds to it.
const SHORT: usize = 1;
const SHORT_PART: usize = 2;

impl Budget {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self::build(max_bytes, None)
    }

    /// Creates a bound within `whole`.
    pub(crate) fn part_of(whole: &Arc<Self>, max_bytes: usize) -> Self {
        let part = Self::build(max_bytes, Some(Arc::clone(whole)));
        if part.is_tight(0) {
            whole.tight_parts.fetch_add(1, Ordering::Relaxed);
        }
        part
    }

    fn build(max_bytes: usize, whole: Option<Arc<Self>>) -> Self {
        Self {
            max_bytes,
            max_ample: max_bytes.checked_sub((max_bytes / 16).max(64 << 10)),
            used: AtomicUsize::new(0),
            short: AtomicUsize::new(0),
            tight_parts: AtomicUsize::new(0),
            whole,
        }
    }

    /// Reserves `bytes` if they fit within the bound.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= self.max_bytes)
        });
        let Ok(before) = taken else {
            self.set_short();
            return false;
        };
        self.changed(before, before.saturating_add(bytes));
        if self.whole.as_ref().is_some_and(|whole| !whole.reserve(bytes)) {
            let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
            self.changed(before, before.saturating_sub(bytes));
            return false;
        }
        true
    }

    /// Returns `true` if `bytes` would fit within the bound. If not, tables should release unneeded memory.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let fits = self.used.load(Ordering::Acquire).checked_add(bytes).is_some_and(|sum| sum <= self.max_bytes);
        if !fits {
            self.set_short();
        }
        fits && self.whole.as_ref().is_none_or(|whole| whole.has_room(bytes))
    }

    /// Returns `true` if a recent reservation failed, in this budget or a part of it: tables should release unneeded memory.
    #[inline]
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) != 0
    }

    /// Returns `true` if one request could reach the bound, or that of a part: less than a sixteenth, or less than 64 KiB, is
    /// free.
    #[inline]
    pub(crate) fn is_nearly_used_up(&self) -> bool {
        self.is_tight(self.used.load(Ordering::Relaxed)) || self.tight_parts.load(Ordering::Relaxed) != 0
    }

    /// Records `bytes` that are already in use, even over the bound; returns whether they fit within it.
    pub(crate) fn record(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::AcqRel);
        let used = before.saturating_add(bytes);
        self.changed(before, used);
        self.whole.as_ref().is_none_or(|whole| whole.record(bytes)) && used <= self.max_bytes
    }

    /// Releases `bytes`.
    pub(crate) fn release(&self, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::AcqRel);
        let used = before.saturating_sub(bytes);
        self.changed(before, used);
        if self.short.load(Ordering::Relaxed) & SHORT != 0 && used < self.max_bytes - self.max_bytes / 8 {
            self.clear_short();
        }
        if let Some(whole) = &self.whole {
            whole.release(bytes);
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    fn is_tight(&self, used: usize) -> bool {
        self.max_ample.is_none_or(|ample| used > ample)
    }

    /// Reports to the whole that this part became nearly used up, or is no longer. Each change of `used` is reported once, so the
    /// number is exact when all are.
    fn changed(&self, before: usize, after: usize) {
        let Some(whole) = &self.whole else { return };
        match (self.is_tight(before), self.is_tight(after)) {
            (false, true) => drop(whole.tight_parts.fetch_add(1, Ordering::Relaxed)),
            (true, false) => drop(whole.tight_parts.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    #[cold]
    fn set_short(&self) {
        let before = self.short.fetch_or(SHORT, Ordering::Relaxed);
        if let Some(whole) = self.whole.as_ref().filter(|_| before & SHORT == 0) {
            whole.short.fetch_add(SHORT_PART, Ordering::Relaxed);
        }
    }

    #[cold]
    fn clear_short(&self) {
        let before = self.short.fetch_and(!SHORT, Ordering::Relaxed);
        if let Some(whole) = self.whole.as_ref().filter(|_| before & SHORT != 0) {
            whole.short.fetch_sub(SHORT_PART, Ordering::Relaxed);
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let used = self.used.load(Ordering::Relaxed);
        let is_tight = self.is_tight(used);
        self.clear_short();
        if let Some(whole) = &self.whole
            && is_tight
        {
            whole.tight_parts.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
