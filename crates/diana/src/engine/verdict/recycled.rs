//! The allocation of a verdict.
//!
//! A verdict is large (it has room for the answers of a few rules) and is moved several times. So it is boxed, and each
//! thread reuses the boxes that it drops: a request allocates no memory (`tests/no_allocation.rs`).

use super::Verdict;
use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};

/// The maximum number of unused boxes that a thread keeps.
const MAX_UNUSED: usize = 32;

/// The unused boxes of a thread.
struct Pool {
    /// The box that was dropped last. Most threads decide about one request after the other, and need no more.
    last: Cell<Option<Box<Verdict>>>,
    #[allow(clippy::vec_box, reason = "the boxes are reused, so that nothing is moved or allocated")]
    others: RefCell<Vec<Box<Verdict>>>,
}

thread_local! {
    static POOL: Pool = const { Pool { last: Cell::new(None), others: RefCell::new(Vec::new()) } };
}

impl Pool {
    #[inline]
    fn take(&self) -> Option<Box<Verdict>> {
        self.last.take().or_else(|| self.others.borrow_mut().pop())
    }

    #[inline]
    fn put(&self, verdict: Box<Verdict>) {
        if let Some(before) = self.last.replace(Some(verdict)) {
            self.put_other(before);
        }
    }

    #[inline(never)]
    fn put_other(&self, verdict: Box<Verdict>) {
        let mut others = self.others.borrow_mut();
        if others.len() + 1 < MAX_UNUSED {
            others.push(verdict);
        }
    }
}

/// A box from the pool of this thread; dropped, it goes to the pool of the thread that drops it.
#[derive(Debug)]
pub(in crate::engine) struct RecycledVerdict(Option<Box<Verdict>>);

impl RecycledVerdict {
    /// Returns an empty verdict.
    #[inline]
    pub(in crate::engine) fn new() -> Self {
        let unused = POOL.try_with(Pool::take).ok().flatten();
        Self(Some(unused.unwrap_or_else(|| Box::new(Verdict::empty()))))
    }

    /// Moves the verdict out. The rest must only be dropped.
    pub(in crate::engine) fn take(&mut self) -> Self {
        Self(self.0.take())
    }

    /// Returns `true` if the verdict was moved out.
    pub(in crate::engine) fn is_taken(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for RecycledVerdict {
    type Target = Verdict;

    #[inline]
    fn deref(&self) -> &Verdict {
        self.0.as_deref().unwrap_or_else(|| unreachable!("the verdict is moved out only by its owner's `drop`"))
    }
}

impl DerefMut for RecycledVerdict {
    #[inline]
    fn deref_mut(&mut self) -> &mut Verdict {
        self.0.as_deref_mut().unwrap_or_else(|| unreachable!("the verdict is moved out only by its owner's `drop`"))
    }
}

impl Drop for RecycledVerdict {
    #[inline]
    fn drop(&mut self) {
        if let Some(verdict) = self.0.take() {
            recycle(verdict);
        }
    }
}

fn recycle(mut verdict: Box<Verdict>) {
    verdict.clear();
    // A thread that is ending has no pool any more; then the box is freed.
    let _ = POOL.try_with(|pool| pool.put(verdict));
}
