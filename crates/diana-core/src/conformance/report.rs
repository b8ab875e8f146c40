//! What the suite found: every check by name, and what differed.

use super::kinds::Kind;
use std::fmt;

/// Every check that was run, and how it went. Shown as text it lists the failures.
#[derive(Clone, Debug, Default)]
#[must_use = "a store that fails a check should not be used"]
pub struct Report {
    checks: Vec<Checked>,
}

/// One check, and how it went.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What is checked.
    pub check: &'static str,
    /// Under which algorithm; empty if under all of them together.
    pub algorithm: String,
    /// How it went.
    pub result: Result<(), Failure>,
}

/// Where a store and the algorithm went apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was checked.
    pub check: &'static str,
    /// Under which algorithm; empty if under all of them together.
    pub algorithm: String,
    /// What was asked of both.
    pub asked: String,
    /// What the algorithm says.
    pub expected: String,
    /// What the store said.
    pub answered: String,
}

/// A failure that does not know yet to which check it belongs.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) asked: String,
    pub(super) expected: String,
    pub(super) answered: String,
}

impl Report {
    /// Whether the store passed every check.
    pub fn passed(&self) -> bool {
        self.failures().next().is_none()
    }

    /// Every check that was run.
    pub fn checks(&self) -> &[Checked] {
        &self.checks
    }

    /// What went wrong, in the order of the checks.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.checks.iter().filter_map(|checked| checked.result.as_ref().err())
    }

    /// All that went wrong as an error.
    pub fn into_result(self) -> Result<(), Vec<Failure>> {
        let failures = self.failures().cloned().collect::<Vec<_>>();
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    pub(super) fn add(&mut self, check: &'static str, kind: Option<&Kind>, result: Result<(), Difference>) {
        let algorithm = kind.map(Kind::to_string).unwrap_or_default();
        let result = result.map_err(|Difference { asked, expected, answered }| Failure {
            check,
            algorithm: algorithm.clone(),
            asked,
            expected,
            answered,
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
        let Self { check, algorithm, asked, expected, answered } = self;
        write!(f, "{check}")?;
        if !algorithm.is_empty() {
            write!(f, " ({algorithm})")?;
        }
        write!(f, "\n  asked:    {asked}\n  expected: {expected}\n  answered: {answered}")
    }
}

impl std::error::Error for Failure {}
