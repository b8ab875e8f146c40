//! One limit as stores know it: an identity, a name, and an algorithm.

use crate::algorithm::erased::AnyAlgorithm;
use crate::sync::Arc;
use crate::{Algorithm, Waiting};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// One limit: its name, its algorithm, and an identity under which stores keep the states of its keys.
///
/// Clones are the same limit. Two limits made alike are different ones, with counts of their own. A limit that
/// [changes](Self::changed_to) keeps its identity, so its keys keep what they have used.
///
/// ```
/// use diana_core::{Limit, Quota, TokenBucket};
///
/// let limit = Limit::new("each-account", TokenBucket::new(Quota::per_second(100)?));
/// let stricter = limit.changed_to(TokenBucket::new(Quota::per_second(10)?));
/// assert_eq!(limit.id(), stricter.id());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone)]
pub struct Limit {
    inner: Arc<Inner>,
}

struct Inner {
    id: LimitId,
    version: u64,
    name: Box<str>,
    algorithm: Box<dyn AnyAlgorithm>,
}

/// What tells limits apart within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u64);

impl Limit {
    /// A new limit under a name that people will see.
    pub fn new(name: impl Into<Box<str>>, algorithm: impl Algorithm) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = LimitId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { inner: Arc::new(Inner { id, version: 0, name: name.into(), algorithm: Box::new(algorithm) }) }
    }

    /// The same limit with other parameters, or another algorithm. A store that sees it carries each key's use over,
    /// clamped to what the new one allows, and from then on answers by the new one whoever asks.
    #[must_use]
    pub fn changed_to(&self, algorithm: impl Algorithm) -> Self {
        // Numbered over all limits, so that of two changes of the same limit the later one counts.
        static CHANGES: AtomicU64 = AtomicU64::new(1);
        let version = CHANGES.fetch_add(1, Ordering::Relaxed);
        let Inner { id, name, .. } = &*self.inner;
        let id = *id;
        Self { inner: Arc::new(Inner { id, version, name: name.clone(), algorithm: Box::new(algorithm) }) }
    }

    /// The identity that this limit and its changed versions share.
    pub fn id(&self) -> LimitId {
        self.inner.id
    }

    /// Which of the limit's versions this is: 0 as it was made, and higher with each change.
    pub fn version(&self) -> u64 {
        self.inner.version
    }

    /// The name that people see.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The algorithm, if it is an `A`: how a store other than the in-process one finds out what to do.
    pub fn algorithm<A: Algorithm>(&self) -> Option<&A> {
        self.any_algorithm().downcast_ref()
    }

    /// The algorithm, whatever it is.
    pub fn any_algorithm(&self) -> &dyn Any {
        self.inner.algorithm.as_any()
    }

    /// Who makes patient requests wait.
    pub fn waiting(&self) -> Waiting {
        self.inner.algorithm.waiting()
    }

    pub(crate) fn erased(&self) -> &dyn AnyAlgorithm {
        &*self.inner.algorithm
    }
}

impl fmt::Debug for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limit")
            .field("name", &self.inner.name)
            .field("version", &self.inner.version)
            .field("algorithm", &self.inner.algorithm)
            .finish()
    }
}
