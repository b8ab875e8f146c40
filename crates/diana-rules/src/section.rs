//! Sections of the rule file that other crates define: the gateway's, the admin server's, the config server's, and
//! yours.
//!
//! A section is parsed, checked and described by the crate that it configures. A program [registers](Registry::section)
//! the sections that it uses, so that one pass over a file reports the problems of all of them, and
//! [`RuleFile::section`] returns them. A program that does not register `gateway`, `services`, `admin` or `remote` ignores them: a
//! service reads the same file as the gateway in front of it.

use crate::file::RuleFile;
use crate::http_settings::HttpSettings;
use crate::registry::Registry;
use diana_document::Problem;
use diana_document::{Node, Span};
use serde_json::Value;
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

/// A file has a section that was not parsed as the requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("section `{name}` is not in the registry that the file was read with")]
#[non_exhaustive]
pub struct SectionNotRegistered {
    /// The name of the section.
    pub name: &'static str,
}

/// A section of any type.
trait AnySection: fmt::Debug + Send + Sync {
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
pub(crate) struct Sections(BTreeMap<&'static str, Option<Arc<dyn AnySection>>>);

impl Sections {
    /// Parses a section, if it is registered.
    pub(crate) fn parse(&mut self, name: &'static str, node: &Node, registry: &Registry, problems: &mut Vec<Problem>) {
        let section = registry.find_section(name).and_then(|kind| (kind.parse)(node, problems));
        if let Some(section) = &section {
            self.check_addresses(name, &**section, node.span, problems);
        }
        self.0.insert(name, section);
    }

    /// Reports an address on which another section listens already. Port 0 is a different port each time.
    fn check_addresses(&self, name: &str, section: &dyn AnySection, at: Span, problems: &mut Vec<Problem>) {
        let own = section.listens_on();
        for (other, earlier) in self.0.iter().filter_map(|(other, earlier)| Some((other, earlier.as_ref()?))) {
            let taken = earlier.listens_on();
            if let Some(twice) = own.iter().find(|own| own.port() != 0 && taken.contains(own)) {
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

impl RuleFile {
    /// Returns a section, or `None` if the file does not have it.
    ///
    /// # Errors
    /// The file has the section, but it was read with a registry that does not have it under this type. A section is
    /// never ignored by the code that it configures.
    pub fn section<S: Section>(&self) -> Result<Option<&S>, SectionNotRegistered> {
        let Some(section) = self.sections.0.get(S::NAME) else { return Ok(None) };
        let section = section.as_ref().and_then(|section| section.as_any().downcast_ref());
        section.map(Some).ok_or(SectionNotRegistered { name: S::NAME })
    }

    /// Returns a copy of a section; the default if the file does not have it.
    ///
    /// # Errors
    /// As for [`section`](Self::section).
    pub fn section_or_default<S: Section + Clone + Default>(&self) -> Result<S, SectionNotRegistered> {
        Ok(self.section::<S>()?.cloned().unwrap_or_default())
    }

    /// Sets a section, also if the file does not have it: for the options of a command line.
    pub fn set_section<S: Section>(&mut self, section: S) {
        self.sections.0.insert(S::NAME, Some(Arc::new(section)));
    }

    /// Returns the settings for HTTP front ends in the file's `gateway`; the defaults if it has none.
    pub fn http_settings(&self) -> HttpSettings {
        let sections = self.sections.0.values().flatten();
        sections.filter_map(|section| section.http_settings()).next().cloned().unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;
    use crate::{scalar, schema};
    use diana_document::Document;
    use diana_document::map_reader::MapReader;

    /// `admin: {listen: ...}`
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Listener(Vec<SocketAddr>);

    impl Section for Listener {
        const NAME: &'static str = "admin";

        fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
            let mut fields = MapReader::of(node, "`admin`", ["listen"], problems)?;
            let listen = fields.take("listen").map(|node| scalar::listen(node, problems));
            fields.finish(problems);
            Some(Self(listen.unwrap_or_default()))
        }

        fn schema() -> Value {
            schema::object("a listener", &["listen"], |_| schema::listen("127.0.0.1:1"))
        }

        fn listens_on(&self) -> Vec<SocketAddr> {
            self.0.clone()
        }
    }

    /// `proxy: {listen: ...}`, which needs local rules.
    #[derive(Debug)]
    struct Proxy(Listener);

    impl Section for Proxy {
        const NAME: &'static str = "proxy";

        fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
            Listener::parse(node, problems).map(Self)
        }

        fn schema() -> Value {
            Listener::schema()
        }

        fn listens_on(&self) -> Vec<SocketAddr> {
            Section::listens_on(&self.0)
        }

        fn requires_rules(&self) -> bool {
            true
        }
    }

    fn read(text: &str, registry: &Registry) -> Result<RuleFile, String> {
        RuleFile::read(&Document::new("diana.yaml", text), registry).map_err(|problems| problems.to_string())
    }

    fn both() -> Registry {
        let mut registry = Registry::default();
        registry.section::<Listener>();
        registry.section::<Proxy>();
        registry
    }

    #[test]
    fn a_section_is_never_ignored_by_its_own_code() {
        let text = "{admin: {listen: '127.0.0.1:1'}, rules: []}";
        let listener = Listener(vec!["127.0.0.1:1".parse().unwrap()]);
        assert_eq!(read(text, &both()).unwrap().section(), Ok(Some(&listener)));
        assert_eq!(read("rules: []", &both()).unwrap().section::<Listener>(), Ok(None));
        // A program that does not register it ignores it, but its own code does not treat it as absent.
        let mut file = read(text, &Registry::default()).unwrap();
        assert_eq!(file.section::<Listener>(), Err(SectionNotRegistered { name: "admin" }));
        assert_eq!(file.section_or_default::<Listener>(), Err(SectionNotRegistered { name: "admin" }));
        file.set_section(listener.clone());
        assert_eq!(file.section_or_default(), Ok(listener));
    }

    #[test]
    fn problems_of_sections_are_those_of_the_file() {
        let problems_of = |text: &str| read(text, &both()).unwrap_err();
        let both = problems_of("{admin: {lisen: 5}, proxy: {listen: x}, rules: [{name: a, brust: 5}]}");
        assert!(
            ["did you mean `listen`?", "invalid value `x` for `listen`", "`brust`"]
                .iter()
                .all(|what| both.contains(what))
        );
        let twice =
            problems_of("{proxy: {listen: '127.0.0.1:1'}, admin: {listen: ['127.0.0.1:0', '127.0.0.1:1']}, rules: []}");
        assert!(twice.contains("address 127.0.0.1:1 is already used by `admin`"), "{twice}");
        assert!(twice.contains("use another address for `proxy`"), "{twice}");
        // An unknown section is a typo, not a section of another crate.
        assert!(problems_of("{proxi: {}, rules: []}").contains("did you mean `proxy`?"));
        assert!(read("{proxy: {}, rules: []}", &Registry::default()).is_err());
    }

    #[test]
    fn a_section_may_need_local_rules_beside_a_config_server() {
        assert!(read("remote: {}", &both()).is_ok());
        assert!(read("{remote: {}, proxy: {}}", &both()).unwrap_err().contains("missing `rules`"));
        assert!(read("admin: {}", &both()).unwrap_err().contains("missing `rules`"));
    }

    #[test]
    fn the_schema_has_what_is_registered() {
        let of = |registry: &Registry, name: &str| schema::rule_file(registry)["properties"][name].clone();
        assert_eq!(of(&both(), "proxy"), Listener::schema());
        assert_eq!(of(&both(), "admin"), Listener::schema());
        assert!(of(&Registry::default(), "proxy").is_null());
        assert_eq!(of(&Registry::default(), "admin")["type"], "object");
    }
}
