//! The allocation of a verdict's [fields](VerdictParts).
//!
//! A verdict is large (it has room for the answers of a few rules) and is moved several times. So it is boxed, and each
//! thread reuses the boxes that it drops: a request allocates no memory (`tests/no_allocation.rs`).

use super::fields::VerdictParts;
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

/// The maximum number of unused boxes that a thread keeps.
const MAX_UNUSED: usize = 32;

/// The unused boxes of a thread.
struct Pool {
    /// The one that was dropped last. Most threads decide about one request after the other, and need no more.
    last: Cell<Option<Box<VerdictParts>>>,
    #[allow(clippy::vec_box, reason = "the boxes are reused, so that nothing is moved or allocated")]
    others: RefCell<Vec<Box<VerdictParts>>>,
}

thread_local! {
    static POOL: Pool = const { Pool { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl Pool {
    #[inline]
    fn take(&self) -> Option<Box<VerdictParts>> {
        self.last.take().or_else(|| self.others.borrow_mut().pop())
    }

    #[inline]
    fn put(&self, parts: Box<VerdictParts>) {
        if let Some(before) = self.last.replace(Some(parts)) {
            self.put_other(before);
        }
    }

    #[inline(never)]
    fn put_other(&self, parts: Box<VerdictParts>) {
        let mut others = self.others.borrow_mut();
        if others.len() + 1 < MAX_UNUSED {
            others.push(parts);
        }
    }
}

/// A box from the pool of this thread; dropped, it goes to the pool of the thread that drops it.
#[derive(Debug)]
pub(super) struct Pooled(Option<Box<VerdictParts>>);

impl Pooled {
    /// Returns empty fields.
    #[inline]
    pub(super) fn new() -> Self {
        let unused = POOL.try_with(Pool::take).ok().flatten();
        Self(Some(unused.unwrap_or_else(|| Box::new(VerdictParts::empty()))))
    }

    /// Moves the fields out. The rest must only be dropped.
    pub(super) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Returns `true` if the fields were moved out.
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Pooled {
    type Target = VerdictParts;

    #[inline]
    fn deref(&self) -> &VerdictParts {
        self.0.as_deref().unwrap_or_else(|| unreachable!("the fields are moved out only by its owner's `drop`"))
    }
}

impl DerefMut for Pooled {
    #[inline]
    fn deref_mut(&mut self) -> &mut VerdictParts {
        self.0.as_deref_mut().unwrap_or_else(|| unreachable!("the fields are moved out only by its owner's `drop`"))
    }
}

impl Drop for Pooled {
    #[inline]
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            recycle(parts);
        }
    }
}

fn recycle(mut parts: Box<VerdictParts>) {
    parts.clear();
    // A thread that is ending has no pool any more; then the box is freed.
    let _ = POOL.try_with(|pool| pool.put(parts));
}
