//! Algorithms by name, with the options that each has in a rule. Custom ones can be added.
//!
//! A rule has `algorithm: NAME`, and beside it the options of that algorithm. A [`Registry`](crate::Registry) has the
//! names. The built-in algorithms are registered like any other, so a new one is a new entry, and files that do not
//! name it are not affected.

pub(crate) mod built_in;
mod options;

pub use diana_core::DynAlgorithm;
use diana_core::Quota;
use diana_document::Problem;
pub use options::AlgorithmOptions;
use std::fmt::{self, Debug};
use std::sync::Arc;

/// Creates an algorithm from a quota and the options of a rule.
type Build = dyn Fn(Quota, &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> + Send + Sync;

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
        build: impl Fn(Quota, &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> + Send + Sync + 'static,
    ) -> Self {
        Self { options, description: None, schema: |_| None, build: Arc::new(build) }
    }

    pub(crate) fn build(&self, quota: Quota, options: &mut AlgorithmOptions<'_, '_>) -> Option<DynAlgorithm> {
        (self.build)(quota, options)
    }
}

/// Reports an error of a diana-core constructor at the location of the limit.
pub(crate) fn invalid(error: impl fmt::Display, options: &mut AlgorithmOptions<'_, '_>) {
    let span = options.span();
    options.problem(Problem::new(span, error.to_string()));
}
