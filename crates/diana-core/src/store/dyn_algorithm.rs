//! An algorithm of any type, so that limits of different kinds can be in one list.

use super::erased_algorithm::AnyAlgorithm;
use crate::{Algorithm, Properties, Quota, TokenBucket};
use std::fmt::{self, Debug};
use std::sync::Arc;

/// An algorithm of any type, with its parameters. Clones share them.
///
/// ```
/// use diana_core::{DynAlgorithm, FixedWindow, TokenBucket};
///
/// let bucket = DynAlgorithm::from(TokenBucket::new("100/s".parse()?));
/// assert_eq!(bucket.properties().quota(), Some("100/s".parse()?));
/// assert_ne!(bucket, DynAlgorithm::from(FixedWindow::new("100/s".parse()?)));
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone)]
pub struct DynAlgorithm(Arc<dyn AnyAlgorithm>);

impl DynAlgorithm {
    /// Returns the algorithm, if it is an `A`.
    pub fn downcast<A: Algorithm>(&self) -> Option<&A> {
        self.0.as_any().downcast_ref()
    }

    /// Returns its [properties](Algorithm::properties).
    pub fn properties(&self) -> Properties<'_> {
        self.0.properties()
    }

    /// [Describes](Algorithm::describe) the limit in words.
    pub fn describe(&self, rate: Option<Quota>) -> Option<String> {
        self.0.describe(rate)
    }

    pub(crate) fn erased(&self) -> &dyn AnyAlgorithm {
        &*self.0
    }
}

impl<A: Algorithm> From<A> for DynAlgorithm {
    fn from(algorithm: A) -> Self {
        Self(Arc::new(algorithm))
    }
}

/// The default algorithm: a [`TokenBucket`].
impl From<Quota> for DynAlgorithm {
    fn from(quota: Quota) -> Self {
        TokenBucket::new(quota).into()
    }
}

impl PartialEq for DynAlgorithm {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_equal(other.erased())
    }
}

impl Debug for DynAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
