//! The options that a rule sets for an algorithm, besides the limit itself.

use diana_document::Problem;
use diana_document::scalar;
use diana_document::{Node, Span};
use std::time::Duration;

/// The options of one limit, which an algorithm reads one by one. Errors are collected, and reported with all others.
#[derive(Debug)]
pub struct AlgorithmOptions<'a, 'p> {
    given: Vec<(&'a str, &'a Node)>,
    span: Span,
    problems: &'p mut Vec<Problem>,
}

impl<'a, 'p> AlgorithmOptions<'a, 'p> {
    pub(crate) fn new(given: Vec<(&'a str, &'a Node)>, span: Span, problems: &'p mut Vec<Problem>) -> Self {
        Self { given, span, problems }
    }

    /// Reads an integer of at least `min`.
    pub fn count(&mut self, name: &str, min: u64) -> Option<u64> {
        let node = self.node(name)?;
        scalar::count(node, &quoted(name), min, self.problems)
    }

    /// Reads a number that is not negative.
    pub fn number(&mut self, name: &str) -> Option<f64> {
        let node = self.node(name)?;
        scalar::real(node, &quoted(name), self.problems)
    }

    /// Reads a duration such as `200ms`.
    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        let node = self.node(name)?;
        scalar::duration(node, &quoted(name), self.problems)
    }

    /// Reads `true` or `false`.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        let node = self.node(name)?;
        scalar::flag(node, &quoted(name), self.problems)
    }

    /// Reads a text.
    pub fn text(&mut self, name: &str) -> Option<&'a str> {
        let node = self.node(name)?;
        scalar::text(node, &quoted(name), self.problems)
    }

    /// Reads one of several words; returns its index.
    pub fn word(&mut self, name: &str, words: &[&str]) -> Option<usize> {
        let node = self.node(name)?;
        scalar::word(node, &quoted(name), words, self.problems)
    }

    /// Returns the value as a node.
    pub fn node(&mut self, name: &str) -> Option<&'a Node> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, node)| *node)
    }

    /// Reports a problem.
    pub fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The location of the limit.
    pub fn span(&self) -> Span {
        self.span
    }

    pub(crate) fn problems(&mut self) -> &mut Vec<Problem> {
        self.problems
    }
}

fn quoted(name: &str) -> String {
    format!("`{name}`")
}
