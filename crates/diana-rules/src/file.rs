//! A whole rule file: its sections and its rules.
//!
//! # The version
//! `version: 1` selects the format of the file; a file without it is read as version 1, the newest compatible version.
//! Every later program accepts what a version accepts, with the same meaning: fields and names are added, and none is
//! removed or changes its meaning. A change that would break old files is a new version, and files of the old version
//! are read as before.

mod charge_other_rules;
mod sections;
mod shadowed;
pub(crate) mod store;
mod warnings;
mod without_environment;

use crate::identity::Identity;
use crate::logged_keys::{LogLevel, LoggedKeys, top_keys};
use crate::names_in_scope::NamesInScope;
use crate::permissions::Permissions;
use crate::registry::Registry;
use crate::response::CustomResponse;
use crate::rule::{Defaults, Rule, read_status};
use crate::section::Sections;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use diana_document::{Document, Node, Span, Value};
use diana_document::{Problem, Problems};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
pub use store::{
    Lease, MemorySection, OnFullKeys, RedisSection, SnapshotSection, StoreSection, StoreTime, WhenRedisIsDown,
};
pub use without_environment::NotChecked;

/// The newest known version of the file.
pub(crate) const NEWEST_VERSION: u64 = 1;
/// The default status of a denied request.
const STATUS: u16 = 503;
/// The maximum number of rules in one file.
pub(crate) const MAX_RULES: usize = 100_000;

/// The fields at the top of a file.
const FIELDS: [&str; 15] = [
    "version",
    "revision",
    "gateway",
    "services",
    "admin",
    "identity",
    "store",
    "remote",
    "log",
    "log_keys",
    "top_keys",
    "status",
    "answer",
    "permissions",
    "rules",
];
/// The fields that are [sections](crate::Section) of Diana's programs. A program that does not register them accepts
/// them too.
const SECTIONS: [&str; 4] = ["gateway", "services", "admin", "remote"];
/// The fields of a document from a config server. Machine-specific sections are allowed only in the local file.
const REMOTE_FIELDS: [&str; 7] = ["version", "revision", "identity", "status", "answer", "permissions", "rules"];

/// The fields at the top of a file, including registered sections.
pub(crate) fn fields(registry: &Registry) -> Vec<&'static str> {
    FIELDS.into_iter().chain(registry.sections().filter(|name| !FIELDS.contains(name))).collect()
}

/// The content of a rule file.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "
/// rules:
///   - name: each-account
///     by: account
///     limit: 100/s
/// ");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(file.rules[0].name, "each-account");
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RuleFile {
    /// The revision of the rules, maintained by their author; 0 if the file has none.
    pub revision: u64,
    /// The sources of the standard keys.
    pub identity: Identity,
    /// Where the counts are stored.
    pub store: StoreSection,
    /// The level at which denials are logged, unless a rule has its own.
    pub log: LogLevel,
    /// How logs write the keys of requests.
    pub log_keys: LoggedKeys,
    /// Whether the heaviest keys of each rule are recorded.
    pub top_keys: bool,
    /// The status of a denied request, unless its rule has its own.
    pub status: u16,
    /// The custom response body of a denied request, unless its rule has its own.
    pub answer: Option<Arc<CustomResponse>>,
    /// Who may call what, if the file says so.
    pub permissions: Option<Arc<Permissions>>,
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Constructs that are valid, but most likely a mistake.
    pub warnings: Option<Problems>,
    pub(crate) sections: Sections,
}

impl Default for RuleFile {
    /// No rules; counts are stored in this process.
    fn default() -> Self {
        Self {
            revision: 0,
            identity: Identity::default(),
            store: StoreSection::default(),
            log: LogLevel::default(),
            log_keys: LoggedKeys::default(),
            top_keys: true,
            status: STATUS,
            answer: None,
            permissions: None,
            rules: Vec::new(),
            warnings: None,
            sections: Sections::default(),
        }
    }
}

impl RuleFile {
    /// Reads a file, with `${VARIABLES}` from the environment. All problems are reported at once.
    pub fn read(document: &Document, registry: &Registry) -> Result<Self, Problems> {
        Self::read_with(document, registry, |name| std::env::var(name).ok())
    }

    /// Reads a file, with `${VARIABLES}` from `variable`.
    pub fn read_with(
        document: &Document,
        registry: &Registry,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Problems> {
        let (tree, replaced) = document.parse_replacing(variable)?;
        let mut problems = Vec::new();
        let file = Self::of_tree(&tree, registry, &mut problems);
        let problems = problems.into_iter().map(|problem| replaced.hide(problem)).collect();
        finish(document, &tree, file, problems)
    }

    /// Returns this file with its rules replaced by those of a document from a config server.
    ///
    /// The document has `rules`, and may have `identity`, `status`, `answer` and `permissions`; all other sections stay local.
    /// `${VARIABLES}` are not replaced in it: the config server must not be able to read the environment of a machine.
    pub fn with_remote(&self, document: &Document, registry: &Registry) -> Result<Self, Problems> {
        let tree = document.parse()?;
        let mut problems = Vec::new();
        let file = self.remote_tree(&tree, registry, &mut problems);
        finish(document, &tree, file, problems)
    }

    /// Reads a parsed file, whose variables are replaced already: for programs that compare settings. Returns `None` if
    /// it has problems.
    pub fn read_tree(tree: &Node, registry: &Registry) -> Option<Self> {
        let mut problems = Vec::new();
        Self::of_tree(tree, registry, &mut problems).filter(|_| problems.is_empty())
    }

    fn of_tree(tree: &Node, registry: &Registry, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(tree, "rule file", fields(registry), problems)?;
        version(fields.take("version"), problems);
        let has_gateway = fields.peek("gateway").is_some();
        let has_remote = fields.peek("remote").is_some();
        let mut sections = Sections::default();
        for name in SECTIONS.into_iter().chain(registry.sections().filter(|name| !FIELDS.contains(name))) {
            if let Some(node) = fields.take(name) {
                sections.parse(name, node, registry.find_section(name), problems);
            }
        }
        let file = Self {
            revision: revision(fields.take("revision"), problems).unwrap_or_default(),
            identity: fields.take("identity").map(|node| Identity::read_partially(node, problems)).unwrap_or_default(),
            store: fields.take("store").and_then(|node| StoreSection::read(node, problems)).unwrap_or_default(),
            log: fields.take("log").and_then(|node| LogLevel::read(node, problems)).unwrap_or_default(),
            log_keys: fields.take("log_keys").and_then(|node| LoggedKeys::read(node, problems)).unwrap_or_default(),
            top_keys: fields.take("top_keys").and_then(|node| top_keys(node, problems)).unwrap_or(true),
            status: fields.take("status").and_then(|node| read_status(node, problems)).unwrap_or(STATUS),
            answer: fields.take("answer").and_then(|node| CustomResponse::read(node, problems)),
            permissions: None,
            rules: Vec::new(),
            warnings: None,
            sections,
        };
        let permissions = fields.take("permissions");
        let permissions = permissions.and_then(|node| Permissions::read(node, &file.identity, problems)).map(Arc::new);
        let scope =
            NamesInScope { registry, identity: &file.identity, gateway: has_gateway, of_match: None, call: None };
        // With a config server, the local rules are a fallback, which is required only if the section requires it.
        let may_be_missing = has_remote && !file.sections.require_rules();
        let rules = if may_be_missing { fields.take("rules") } else { fields.require("rules", problems) };
        let rules = rules.map(|node| file.read_rules(node, &scope, problems)).unwrap_or_default();
        fields.finish(problems);
        Some(Self { permissions, rules, ..file })
    }

    fn remote_tree(&self, tree: &Node, registry: &Registry, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(tree, "rules document", fields(registry), problems)?;
        for local in self::fields(registry).into_iter().filter(|name| !REMOTE_FIELDS.contains(name)) {
            if let Some(entry) = fields.take_entry(local) {
                let problem =
                    Problem::new(entry.span, format!("`{local}` is not supported in rules from a config server"));
                let fields = "`version`, `revision`, `identity`, `status`, `answer`, `permissions` and `rules`";
                problems.push(problem.expected(format!("move it to the local file; expected only {fields}")));
            }
        }
        version(fields.take("version"), problems);
        let revision = revision(fields.take("revision"), problems).unwrap_or_default();
        let identity = fields.take("identity").map(|node| Identity::read_partially(node, problems));
        let status = fields.take("status").and_then(|node| read_status(node, problems)).unwrap_or(self.status);
        let answer = fields.take("answer").and_then(|node| CustomResponse::read(node, problems));
        let answer = answer.or_else(|| self.answer.clone());
        let identity = identity.unwrap_or_else(|| self.identity.clone());
        let permissions = fields.take("permissions");
        let permissions = permissions.and_then(|node| Permissions::read(node, &identity, problems)).map(Arc::new);
        let permissions = permissions.or_else(|| self.permissions.clone());
        let file = Self { revision, identity, status, answer, permissions, ..self.clone() };
        let scope = NamesInScope {
            registry,
            identity: &file.identity,
            gateway: self.sections.has("gateway"),
            of_match: None,
            call: None,
        };
        let rules = fields.require("rules", problems).map(|node| file.read_rules(node, &scope, problems));
        fields.finish(problems);
        Some(Self { rules: rules.unwrap_or_default(), ..file })
    }

    /// Collects warnings about the document that the rules are from.
    fn warn(&self, tree: &Node) -> Vec<Problem> {
        let nodes = rules_in(tree).iter().map(|item| (item.span, item)).collect::<HashMap<_, _>>();
        let mut warnings = warnings::of(self, |rule| name_of(nodes.get(&rule.span).copied(), rule));
        let Value::Map(entries) = &tree.value else { return warnings };
        // A document from a config server has none of the local sections.
        let entry = |name: &str| entries.iter().find(|entry| entry.key == name);
        let of_sections = self.sections.warnings().filter_map(|(name, what, fix)| {
            Some(Problem::new(entry(name)?.span, format!("warning: {what}")).expected(fix))
        });
        warnings.extend(of_sections);
        warnings
    }

    fn read_rules(&self, node: &Node, scope: &NamesInScope<'_>, problems: &mut Vec<Problem>) -> Vec<Rule> {
        let Value::List(items) = &node.value else {
            let what = format!("invalid `rules`: expected a list, found {}", node.value.kind());
            problems.push(Problem::new(node.span, what).expected("expected rules that start with `- name: ...`"));
            return Vec::new();
        };
        if items.len() > MAX_RULES {
            let problem = Problem::new(node.span, format!("too many rules: {}", items.len()));
            problems.push(problem.expected(format!("expected at most {MAX_RULES}")));
            return Vec::new();
        }
        let has_shared = self.store.redis.is_some();
        let defaults = Defaults { status: self.status, answer: self.answer.as_ref(), log: self.log, has_shared };
        let (mut rules, mut invalid) = (Vec::new(), HashSet::new());
        for item in items {
            let before = problems.len();
            rules.extend(Rule::read(item, scope, &defaults, problems));
            if problems.len() > before {
                invalid.insert(item.span);
            }
        }
        let nodes = items.iter().map(|item| (item.span, item)).collect::<HashMap<_, _>>();
        let name_span = |rule: &Rule| name_of(nodes.get(&rule.span).copied(), rule);
        // Also checks rules with other problems, so that all problems are reported at once.
        let mut known = HashSet::new();
        for name in items.iter().filter_map(name_in) {
            if let Some(text) = name.text().filter(|text| !text.is_empty() && !known.insert(*text)) {
                let problem = Problem::new(name.span, format!("duplicate rule name `{text}`"));
                problems.push(problem.expected("use another name: counts are stored by name"));
            }
        }
        charge_other_rules::resolve(&mut rules, &nodes, problems);
        shadowed::check(&rules, |rule| !invalid.contains(&rule.span), name_span, problems);
        rules
    }
}

/// The nodes of a document's rules.
fn rules_in(tree: &Node) -> &[Node] {
    let Value::Map(entries) = &tree.value else { return &[] };
    match entries.iter().find(|entry| entry.key == "rules").map(|entry| &entry.node.value) {
        Some(Value::List(items)) => items,
        _ => &[],
    }
}

/// The node of a rule's name.
fn name_in(item: &Node) -> Option<&Node> {
    match &item.value {
        Value::Map(entries) => entries.iter().find(|entry| entry.key == "name").map(|entry| &entry.node),
        _ => None,
    }
}

/// The location of a rule's name.
fn name_of(item: Option<&Node>, rule: &Rule) -> Span {
    item.and_then(name_in).map_or(rule.span, |name| name.span)
}

fn version(node: Option<&Node>, problems: &mut Vec<Problem>) {
    let Some(node) = node else { return };
    let number = node.text().and_then(|text| text.parse::<u64>().ok());
    if node.text() != Some(&*NEWEST_VERSION.to_string()) {
        let shown = node.text().map_or_else(|| node.value.kind().to_owned(), |text| format!("`{text}`"));
        let what = format!("unsupported rule file version {shown}: this program supports version {NEWEST_VERSION}");
        let newer = number.is_some_and(|number| number > NEWEST_VERSION);
        let expected = if newer { "use a newer program, or version 1" } else { "expected `version: 1`, or no version" };
        problems.push(Problem::new(node.span, what).expected(expected));
    }
}

fn revision(node: Option<&Node>, problems: &mut Vec<Problem>) -> Option<u64> {
    scalar::count(node?, "`revision`", 0, problems)
}

fn finish(
    document: &Document,
    tree: &Node,
    file: Option<RuleFile>,
    problems: Vec<Problem>,
) -> Result<RuleFile, Problems> {
    match file {
        Some(file) if problems.is_empty() => {
            let warnings = file.warn(tree);
            let warnings = (!warnings.is_empty()).then(|| document.problems(warnings));
            Ok(RuleFile { warnings, ..file })
        }
        _ => Err(document.problems(problems)),
    }
}
