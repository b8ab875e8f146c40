//! The results of the suite: every check by name, and the differences.

use super::algorithm_cases::Case;
use std::fmt;

/// The results of all checks. Its `Display` lists the failures.
#[derive(Clone, Debug, Default)]
#[must_use = "a store that fails a check should not be used"]
pub struct Report {
    checks: Vec<Checked>,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The check.
    pub check: &'static str,
    /// The algorithm; empty if all of them together.
    pub algorithm: String,
    /// The result.
    pub result: Result<(), Failure>,
}

/// A difference between a store and the algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The check.
    pub check: &'static str,
    /// The algorithm; empty if all of them together.
    pub algorithm: String,
    /// The operation.
    pub operation: String,
    /// The algorithm's answer.
    pub expected: String,
    /// The store's answer.
    pub actual: String,
}

/// A failure that is not assigned to a check yet.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) operation: String,
    pub(super) expected: String,
    pub(super) actual: String,
}

impl Report {
    /// Returns `true` if the store passed every check.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Returns all checks.
    pub fn checks(&self) -> &[Checked] {
        &self.checks
    }

    /// Returns the failures, in the order of the checks.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.checks.iter().filter_map(|checked| checked.result.as_ref().err())
    }

    /// Returns all failures as an error.
    pub fn into_result(self) -> Result<(), Vec<Failure>> {
        let failures = self.failures().cloned().collect::<Vec<_>>();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    pub(super) fn add(&mut self, check: &'static str, case: Option<&Case>, result: Result<(), Difference>) {
        let algorithm = case.map(Case::to_string).unwrap_or_default();
        let result = result.map_err(|Difference { operation, expected, actual }| Failure {
            check,
            algorithm: algorithm.clone(),
            operation,
            expected,
            actual,
        });
        self.checks.push(Checked { check, algorithm, result });
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} checks failed", self.failures().count(), self.checks.len())?;
        self.failures().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { check, algorithm, operation, expected, actual } = self;
        write!(f, "{check}")?;
        if !algorithm.is_empty() {
            write!(f, " ({algorithm})")?;
        }
        write!(f, "\n  operation: {operation}\n  expected:  {expected}\n  actual:    {actual}")
    }
}

impl std::error::Error for Failure {}
