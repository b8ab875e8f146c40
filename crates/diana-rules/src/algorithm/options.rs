//! What a rule says to an algorithm, beside the limit itself.

use crate::document::node::{Node, Span};
use crate::problem::Problem;
use crate::scalar;
use std::time::Duration;

/// The options of one limit, which an algorithm reads one by one. What is wrong is noted, and told with everything else.
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

    /// A whole number from `least` on.
    pub fn count(&mut self, name: &str, least: u64) -> Option<u64> {
        let node = self.node(name)?;
        scalar::count(node, &quoted(name), least, self.problems)
    }

    /// A number that is not below zero.
    pub fn number(&mut self, name: &str) -> Option<f64> {
        let node = self.node(name)?;
        scalar::real(node, &quoted(name), self.problems)
    }

    /// A time such as `200ms`.
    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        let node = self.node(name)?;
        scalar::duration(node, &quoted(name), self.problems)
    }

    /// `true` or `false`.
    pub fn flag(&mut self, name: &str) -> Option<bool> {
        let node = self.node(name)?;
        scalar::flag(node, &quoted(name), self.problems)
    }

    /// A text.
    pub fn text(&mut self, name: &str) -> Option<&'a str> {
        let node = self.node(name)?;
        scalar::text(node, &quoted(name), self.problems)
    }

    /// One of a few words: which, counted from 0.
    pub fn word(&mut self, name: &str, words: &[&str]) -> Option<usize> {
        let node = self.node(name)?;
        scalar::word(node, &quoted(name), words, self.problems)
    }

    /// The value as it is.
    pub fn node(&mut self, name: &str) -> Option<&'a Node> {
        self.given.iter().find(|(given, _)| *given == name).map(|(_, node)| *node)
    }

    /// Notes what is wrong.
    pub fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Where the limit stands.
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
