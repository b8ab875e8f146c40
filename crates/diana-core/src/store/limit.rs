//! One limit as stores see it: an identity, a name, and an algorithm.

use super::erased_algorithm::AnyAlgorithm;
use crate::{Algorithm, DynAlgorithm, Properties, Quota, WaitMode};
use std::any::Any;
use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One limit: its name, its algorithm, and an identity under which stores keep the states of its keys.
///
/// Cloning is cheap; clones are the same limit. Two limits created with the same arguments are different limits with
/// separate counts. A limit that [changes](Self::changed_to) keeps its identity, so its keys keep their usage.
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
    inner: Arc<LimitParts>,
}

struct LimitParts {
    id: LimitId,
    version: u64,
    name: Box<str>,
    algorithm: DynAlgorithm,
    memory: Option<MemoryBound>,
}

/// A bound on the memory of the keys of some limits, within that of their store. Clones are the same bound.
///
/// ```
/// use diana_core::{Limit, MemoryBound, Quota, TokenBucket};
///
/// // Like a zone of nginx: both limits have 10 MiB for their keys.
/// let zone = MemoryBound::new(10 << 20);
/// let second = Limit::new("second", TokenBucket::new(Quota::per_second(10)?)).with_memory(Some(&zone));
/// let hour = Limit::new("hour", TokenBucket::new(Quota::per_hour(1000)?)).with_memory(Some(&zone));
/// # let _ = (second, hour);
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBound(Arc<usize>);

impl MemoryBound {
    /// Creates a bound in bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(bytes))
    }

    /// Returns the bound in bytes.
    pub fn bytes(&self) -> usize {
        *self.0
    }
}

impl PartialEq for MemoryBound {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for MemoryBound {}

/// Identifies a limit within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u64);

impl LimitId {
    /// Returns its number; limits are numbered in the order of their creation.
    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

/// Hashes [`LimitId`]s, which are sequential numbers that clients can't choose: spreading their bits is enough of a hash.
#[derive(Debug, Default)]
pub struct LimitIdHasher(u64);

impl Hasher for LimitIdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Limit {
    /// Creates a limit with a name for display.
    pub fn new(name: impl Into<Box<str>>, algorithm: impl Into<DynAlgorithm>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (id, name, algorithm) = (LimitId(NEXT.fetch_add(1, Ordering::Relaxed)), name.into(), algorithm.into());
        Self { inner: Arc::new(LimitParts { id, version: 0, name, algorithm, memory: None }) }
    }

    /// Returns the same limit with other parameters or another algorithm. A store that receives it migrates each key's
    /// usage, clamped to the new capacity, and from then on uses the new version for every request.
    #[must_use]
    pub fn changed_to(&self, algorithm: impl Into<DynAlgorithm>) -> Self {
        self.changed(algorithm.into(), self.inner.memory.clone())
    }

    /// Returns the same limit with another memory bound, or without one: then its keys have the memory of the store.
    #[must_use]
    pub fn with_memory(&self, memory: Option<&MemoryBound>) -> Self {
        if self.inner.memory.as_ref() == memory {
            return self.clone();
        }
        self.changed(self.inner.algorithm.clone(), memory.cloned())
    }

    /// Returns the memory bound of its keys, if it has one.
    pub fn memory(&self) -> Option<&MemoryBound> {
        self.inner.memory.as_ref()
    }

    fn changed(&self, algorithm: DynAlgorithm, memory: Option<MemoryBound>) -> Self {
        // Numbered over all limits, so that of two changes of the same limit the later one is used.
        static CHANGES: AtomicU64 = AtomicU64::new(1);
        let version = CHANGES.fetch_add(1, Ordering::Relaxed);
        let LimitParts { id, name, .. } = &*self.inner;
        Self { inner: Arc::new(LimitParts { id: *id, version, name: name.clone(), algorithm, memory }) }
    }

    /// Returns the identity shared by this limit and its changed versions.
    pub fn id(&self) -> LimitId {
        self.inner.id
    }

    /// Returns the version of the limit: 0 when created, higher with each change.
    pub fn version(&self) -> u64 {
        self.inner.version
    }

    /// Returns the display name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the algorithm if it is an `A`: how a store other than the in-process one selects its implementation.
    pub fn algorithm<A: Algorithm>(&self) -> Option<&A> {
        self.inner.algorithm.downcast()
    }

    /// Returns the algorithm as `Any`.
    pub fn any_algorithm(&self) -> &dyn Any {
        self.erased().as_any()
    }

    /// Returns the algorithm and its parameters as text, by which a snapshot recognises a limit that has not changed.
    pub fn parameters(&self) -> String {
        format!("{:?}", self.inner.algorithm)
    }

    /// Returns the properties of its algorithm.
    pub fn properties(&self) -> Properties<'_> {
        self.inner.algorithm.properties()
    }

    /// Returns the permits that a new key can take at once.
    pub fn capacity(&self) -> u64 {
        self.erased().capacity()
    }

    /// Returns the quota that it was configured with; `None` if its algorithm has none, or several.
    pub fn quota(&self) -> Option<Quota> {
        self.properties().quota()
    }

    /// Returns whether waiting requests get a reservation or are queued.
    pub fn wait_mode(&self) -> WaitMode {
        self.erased().wait_mode()
    }

    pub(crate) fn erased(&self) -> &dyn AnyAlgorithm {
        self.inner.algorithm.erased()
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
