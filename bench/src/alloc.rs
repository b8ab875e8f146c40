//! An allocator that counts, so that "bytes per key" is measured and not modelled.
//!
//! It counts requested bytes; the allocator's own headers (8 to 16 bytes per block) are not included, which favours
//! code with many small blocks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator with a count of the bytes in use.
pub struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes in use now.
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

#[allow(unsafe_code, reason = "an allocator is unsafe to implement; every call is handed to the system's as it is")]
// SAFETY: the system allocator does the work under the same contract; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller upholds `alloc`'s contract, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `block` came from the system's allocator with this layout, since all of ours do.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as for `dealloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}
