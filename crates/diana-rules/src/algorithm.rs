//! Algorithms by name, with the options that each has in a rule. Custom ones can be added.
//!
//! A rule has `algorithm: NAME`, and beside it the options of that algorithm. A [`Registry`](crate::Registry) has the
//! names. The built-in algorithms are registered like any other, so a new one is a new entry, and files that do not
//! name it are not affected.

pub(crate) mod built_in;
mod options;

use diana_core::{Algorithm, Limit, Quota};
use diana_document::Problem;
pub use options::AlgorithmOptions;
use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// An algorithm of any type, with its parameters: the result of parsing a limit.
///
/// ```
/// use diana_core::{FixedWindow, TokenBucket};
/// use diana_rules::algorithm::Configured;
///
/// let bucket = Configured::new(TokenBucket::new("100/s".parse()?));
/// let limit = bucket.limit("each-account");
/// let window = Configured::new(FixedWindow::new("100/s".parse()?));
/// assert_ne!(bucket, window);
/// assert_eq!(window.changed(&limit).id(), limit.id());
/// # Ok::<(), diana_core::InvalidQuota>(())
/// ```
#[derive(Clone)]
pub struct Configured {
    algorithm: Arc<dyn AnyConfigured>,
    description: Option<Arc<str>>,
}

trait AnyConfigured: Debug + Send + Sync {
    fn limit(&self, name: &str) -> Limit;
    fn changed(&self, limit: &Limit) -> Limit;
    fn as_any(&self) -> &dyn Any;
    fn same(&self, other: &dyn AnyConfigured) -> bool;
}

impl<A: Algorithm> AnyConfigured for A {
    fn limit(&self, name: &str) -> Limit {
        Limit::new(name, self.clone())
    }

    fn changed(&self, limit: &Limit) -> Limit {
        limit.changed_to(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn same(&self, other: &dyn AnyConfigured) -> bool {
        other.as_any().downcast_ref::<A>() == Some(self)
    }
}

impl Configured {
    /// Wraps an algorithm.
    pub fn new(algorithm: impl Algorithm) -> Self {
        Self { algorithm: Arc::new(algorithm), description: None }
    }

    /// Sets a description, for displaying rules: `at most 5 in any second`. The built-in algorithms already have one.
    #[must_use]
    pub fn describe(self, description: impl Into<Arc<str>>) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// The description, if one was set.
    pub(crate) fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    /// Creates a limit of this algorithm.
    pub fn limit(&self, name: &str) -> Limit {
        self.algorithm.limit(name)
    }

    /// Returns `limit`, changed to this algorithm. Its keys keep their usage.
    #[must_use]
    pub fn changed(&self, limit: &Limit) -> Limit {
        self.algorithm.changed(limit)
    }

    /// Returns the algorithm, if it is an `A`.
    pub fn algorithm<A: Algorithm>(&self) -> Option<&A> {
        self.algorithm.as_any().downcast_ref()
    }
}

impl PartialEq for Configured {
    fn eq(&self, other: &Self) -> bool {
        self.algorithm.same(&*other.algorithm)
    }
}

impl Debug for Configured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.algorithm.fmt(f)
    }
}

/// Creates an algorithm from a quota and the options of a rule.
type Build = dyn Fn(Quota, &mut AlgorithmOptions<'_, '_>) -> Option<Configured> + Send + Sync;

/// Returns the JSON Schema of an option, if it has one.
pub(crate) type OptionSchema = fn(&str) -> Option<serde_json::Value>;

/// A registered algorithm.
#[derive(Clone)]
pub(crate) struct RegisteredAlgorithm {
    pub(crate) options: &'static [&'static str],
    /// The description, for editors.
    pub(crate) description: Option<&'static str>,
    /// The schema of each option, for editors.
    pub(crate) schema: OptionSchema,
    build: Arc<Build>,
}

impl Debug for RegisteredAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredAlgorithm").field("options", &self.options).finish_non_exhaustive()
    }
}

impl RegisteredAlgorithm {
    pub(crate) fn new(
        options: &'static [&'static str],
        build: impl Fn(Quota, &mut AlgorithmOptions<'_, '_>) -> Option<Configured> + Send + Sync + 'static,
    ) -> Self {
        Self { options, description: None, schema: |_| None, build: Arc::new(build) }
    }

    pub(crate) fn build(&self, quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<Configured> {
        (self.build)(quota, options)
    }
}

/// Reports an error of a diana-core constructor at the location of the limit.
pub(crate) fn invalid(error: impl fmt::Display, options: &mut AlgorithmOptions<'_, '_>) {
    let span = options.span();
    options.problem(Problem::new(span, error.to_string()));
}
