//! Which spellings of requests the gateway accepts: `paths: {escaped_slash: deny}`, `methods: {any_case: allow}`.

use crate::document::node::Node;
use crate::map_reader::MapReader;
use crate::problem::Problem;
use crate::scalar;

/// Whether requests with this spelling are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// Such requests are accepted.
    Allow,
    /// Such requests are rejected with 400.
    Deny,
}

/// Which spellings of paths are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paths {
    /// Paths with an escaped `/` or `\`: `%2F`, `%5C`. Accepted by default, since package registries, GitLab and
    /// RabbitMQ need them.
    pub escaped_slash: Spelling,
}

/// Which spellings of methods are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Methods {
    /// HTTP methods in another case, such as `post`. Denied by default, since services disagree on whether these are
    /// the same method.
    pub any_case: Spelling,
}

pub(crate) const PATHS: [&str; 1] = ["escaped_slash"];
pub(crate) const METHODS: [&str; 1] = ["any_case"];

impl Spelling {
    pub(crate) const WORDS: [&str; 2] = ["allow", "deny"];
    const ALL: [Self; 2] = [Self::Allow, Self::Deny];

    fn read(fields: &mut MapReader<'_>, name: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let word = scalar::word(fields.take(name)?, &format!("`{name}`"), &Self::WORDS, problems)?;
        Self::ALL.get(word).copied()
    }
}

impl Default for Paths {
    fn default() -> Self {
        Self { escaped_slash: Spelling::Allow }
    }
}

impl Default for Methods {
    fn default() -> Self {
        Self { any_case: Spelling::Deny }
    }
}

impl Paths {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`paths`", PATHS, problems)?;
        let escaped_slash = Spelling::read(&mut fields, "escaped_slash", problems);
        fields.finish(problems);
        Some(escaped_slash.map_or_else(Self::default, |escaped_slash| Self { escaped_slash }))
    }
}

impl Methods {
    pub(super) fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`methods`", METHODS, problems)?;
        let any_case = Spelling::read(&mut fields, "any_case", problems);
        fields.finish(problems);
        Some(any_case.map_or_else(Self::default, |any_case| Self { any_case }))
    }
}
