//! Sections of the rule file that other crates define: the gateway's, the admin server's, the config server's, and
//! yours.
//!
//! A section is parsed, checked and described by the crate that it configures. A program [registers](crate::Registry::section)
//! the sections that it uses, so that one pass over a file reports the problems of all of them, and
//! [`RuleFile::section`](crate::RuleFile::section) returns them. A program that does not register `gateway`, `services`, `admin` or `remote` ignores them: a
//! service reads the same file as the gateway in front of it.

use crate::http_settings::HttpSettings;
use crate::json_schema::object;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::{Node, Span};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

/// A section of the rule file.
///
/// ```
/// use diana_rules::document::Node;
/// use diana_rules::map_reader::MapReader;
/// use diana_rules::{Document, Problem, Registry, RuleFile, Section, scalar, schema};
///
/// /// `cache: {entries: 100}`
/// #[derive(Debug)]
/// struct CacheSection {
///     entries: u64,
/// }
///
/// impl Section for CacheSection {
///     const NAME: &'static str = "cache";
///
///     fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
///         let mut fields = MapReader::of(node, "`cache`", ["entries"], problems)?;
///         let entries = fields.take("entries").and_then(|node| scalar::count(node, "`entries`", 1, problems));
///         fields.finish(problems);
///         Some(Self { entries: entries.unwrap_or(1_000) })
///     }
///
///     fn schema() -> serde_json::Value {
///         schema::object("the cache", &["entries"], |_| schema::reference("count", "its size; 1000 by default"))
///     }
/// }
///
/// let mut registry = Registry::default();
/// registry.section::<CacheSection>();
/// let file = RuleFile::read(&Document::new("diana.yaml", "{cache: {entries: 100}, rules: []}"), &registry)?;
/// assert_eq!(file.section::<CacheSection>()?.unwrap().entries, 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Section: fmt::Debug + Send + Sync + Sized + 'static {
    /// The field of the file.
    const NAME: &'static str;

    /// Parses the section. Reports all its problems; returns `None` if it can't be used at all.
    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self>;

    /// Returns the JSON Schema of the section; see [`schema`](crate::schema).
    fn schema() -> Value;

    /// The addresses that the section listens on. Two sections that listen on the same address are a problem.
    fn listens_on(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// Returns what works, but is most likely a mistake: each with a suggested fix.
    fn warnings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns `true` if the file must have `rules` although it has `remote`.
    fn requires_rules(&self) -> bool {
        false
    }

    /// The settings for HTTP front ends, if the section has them: `gateway`.
    fn http_settings(&self) -> Option<&HttpSettings> {
        None
    }
}

impl Section for HttpSettings {
    const NAME: &'static str = "gateway";

    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`gateway`", Self::FIELDS, problems)?;
        // The other fields are the gateway's.
        Some(Self::parse_fields(&mut fields, problems))
    }

    fn schema() -> Value {
        let mut schema = object("the settings of a gateway", &Self::FIELDS, Self::schema_of);
        schema["additionalProperties"] = json!(true);
        schema
    }

    fn http_settings(&self) -> Option<&HttpSettings> {
        Some(self)
    }
}

/// A file has a section that was not parsed as the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("section `{name}` is not in the registry that the file was read with")]
#[non_exhaustive]
pub struct SectionNotRegistered {
    /// The name of the section.
    pub name: &'static str,
}

/// A section of any type.
pub(crate) trait AnySection: fmt::Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;
    fn listens_on(&self) -> Vec<SocketAddr>;
    fn warnings(&self) -> Vec<(String, String)>;
    fn requires_rules(&self) -> bool;
    fn http_settings(&self) -> Option<&HttpSettings>;
}

impl<S: Section> AnySection for S {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn listens_on(&self) -> Vec<SocketAddr> {
        Section::listens_on(self)
    }

    fn warnings(&self) -> Vec<(String, String)> {
        Section::warnings(self)
    }

    fn requires_rules(&self) -> bool {
        Section::requires_rules(self)
    }

    fn http_settings(&self) -> Option<&HttpSettings> {
        Section::http_settings(self)
    }
}

/// Parses a section of some type.
type ParseSection = fn(&Node, &mut Vec<Problem>) -> Option<Arc<dyn AnySection>>;

/// A registered section.
#[derive(Clone, Copy)]
pub(crate) struct SectionKind {
    parse: ParseSection,
    pub(crate) schema: fn() -> Value,
}

impl SectionKind {
    pub(crate) fn of<S: Section>() -> Self {
        Self { parse: |node, problems| Some(Arc::new(S::parse(node, problems)?)), schema: S::schema }
    }
}

/// The sections of a file, by name. A section that was not parsed is `None`: it is not registered, or has problems.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sections(pub(crate) BTreeMap<&'static str, Option<Arc<dyn AnySection>>>);

impl Sections {
    /// Parses a section, if it is registered.
    pub(crate) fn parse(
        &mut self,
        name: &'static str,
        node: &Node,
        kind: Option<&SectionKind>,
        problems: &mut Vec<Problem>,
    ) {
        let section = kind.and_then(|kind| (kind.parse)(node, problems));
        if let Some(section) = &section {
            self.check_addresses(name, &**section, node.span, problems);
        }
        self.0.insert(name, section);
    }

    /// Reports an address on which another section listens already. Port 0 is a different port each time.
    fn check_addresses(&self, name: &str, section: &dyn AnySection, at: Span, problems: &mut Vec<Problem>) {
        let addresses = section.listens_on();
        for (other, earlier) in self.0.iter().filter_map(|(other, earlier)| Some((other, earlier.as_ref()?))) {
            let taken = earlier.listens_on();
            if let Some(twice) = addresses.iter().find(|address| address.port() != 0 && taken.contains(address)) {
                let problem = Problem::new(at, format!("address {twice} is already used by `{other}`"));
                problems.push(problem.expected(format!("use another address for `{name}`")));
            }
        }
    }

    /// Returns the warnings of each section, with its name.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = (&'static str, String, String)> {
        let parsed = self.0.iter().filter_map(|(name, section)| Some((*name, section.as_ref()?)));
        parsed.flat_map(|(name, section)| section.warnings().into_iter().map(move |(what, fix)| (name, what, fix)))
    }

    /// Returns `true` if the file has this section.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns `true` if a section requires `rules`.
    pub(crate) fn require_rules(&self) -> bool {
        self.0.values().flatten().any(|section| section.requires_rules())
    }
}

#[cfg(test)]
mod tests;
