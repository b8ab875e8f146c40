//! The allocation of a verdict's [fields](VerdictParts).
//!
//! A verdict is large (it has room for the answers of a few rules) and is moved several times. So it is boxed, and each
//! thread reuses the boxes that it drops: a request allocates no memory (`tests/no_allocation.rs`).

use super::fields::VerdictParts;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// The maximum number of unused boxes that a thread keeps.
const MAX_UNUSED: usize = 32;

thread_local! {
    #[allow(clippy::vec_box, reason = "the boxes are reused, so that nothing is moved or allocated")]
    static UNUSED: RefCell<Vec<Box<VerdictParts>>> = const { RefCell::new(Vec::new()) };
}

/// A box from the pool of this thread; dropped, it goes to the pool of the thread that drops it.
#[derive(Debug)]
pub(super) struct Pooled(Option<Box<VerdictParts>>);

impl Pooled {
    /// Returns empty fields.
    pub(super) fn new() -> Self {
        let unused = UNUSED.try_with(|unused| unused.borrow_mut().pop()).ok().flatten();
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
    fn drop(&mut self) {
        let Some(mut parts) = self.0.take() else { return };
        parts.clear();
        // A thread that is ending has no pool any more; then the box is freed.
        let _ = UNUSED.try_with(|unused| {
            let mut unused = unused.borrow_mut();
            if unused.len() < MAX_UNUSED {
                unused.push(parts);
            }
        });
    }
}
