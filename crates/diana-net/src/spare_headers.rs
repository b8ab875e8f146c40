//! The memory of heads that are no longer used, for the next ones of the same thread.

use http::HeaderMap;
use std::cell::Cell;

thread_local! {
    /// The memory of one head.
    static SPARE: Cell<HeaderMap> = Cell::new(HeaderMap::new());
}

/// The capacity above which the memory of a head is not kept.
const MAX_SPARE: usize = 128;

/// Keeps the memory of a head that is no longer used.
pub fn recycle(mut headers: HeaderMap) {
    if headers.capacity() <= MAX_SPARE {
        headers.clear();
        SPARE.set(headers);
    }
}

/// Returns an empty map, with the memory of an earlier head.
pub(crate) fn recycled() -> HeaderMap {
    SPARE.take()
}
