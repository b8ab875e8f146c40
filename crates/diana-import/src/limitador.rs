//! Limitador: its limits become rules for Envoy's requests.
//!
//! A limit applies to requests of its namespace for which all conditions hold and all variables have values; each
//! combination of values is counted separately, in a window that begins with the first request.
//!
//! Limitador's conditions read the list of descriptors of a request; Diana matches each descriptor by itself. With one
//! descriptor, as in most configurations, that is the same.
//!
//! An entry with an empty value that is a variable counts as missing, as everywhere in Diana; limitador counts it.

mod expression;

use crate::rule_file::{DescriptorMatch, EntryMatch, Limit, Rule, RuleFile, Source};
use crate::{Imported, MAX_CONDITION, MAX_COUNT, Note, SERVICES};
use diana_rules::document::{Format, Node, Span, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::{Document, Problem, Problems, Registry, scalar};
use expression::{alternatives, entry_of, equality, translated};

/// Converts the limits file of limitador to a rule file.
///
/// ```
/// use diana_import::import_limitador;
/// use diana_rules::Registry;
///
/// let yaml = "\
/// - namespace: shop
///   max_value: 10
///   seconds: 60
///   conditions: [\"descriptors[0].req_method == 'POST'\"]
///   variables: [\"descriptors[0].user_id\"]
/// ";
/// let imported = import_limitador("limits.yaml", yaml, &Registry::default()).unwrap();
/// assert!(imported.notes.is_empty());
/// assert!(imported.rules.ends_with("\
///   - name: shop.1
///     by: descriptor(user_id)
///     match:
///       domain: shop
///       descriptor: {req_method: POST}
///     limit: 10/60s
///     algorithm: fixed_window
///     opens: first_request
/// "), "{}", imported.rules);
/// ```
pub fn import_limitador(name: &str, text: &str, registry: &Registry) -> Result<Imported, Box<Problems>> {
    let document = Document::new(name, text).with_format(Format::Yaml);
    let tree = document.parse().map_err(Box::new)?;
    let mut problems = Vec::new();
    let limits = read(&tree, &mut problems);
    if !problems.is_empty() {
        return Err(Box::new(document.problems(problems)));
    }
    let header = vec![format!("Converted from {name} by `diana import limitador`.")];
    let mut file = RuleFile { header, suggests_envoy: true, status: Some(429), ..RuleFile::default() };
    let mut notes = Vec::new();
    for (number, limit) in limits.iter().enumerate() {
        let line = text.bytes().take(limit.span.start).filter(|byte| *byte == b'\n').count() + 1;
        let source = Source { file: name.to_owned(), line, directive: "limit".to_owned() };
        file.rules.extend(limit.rule(number + 1, source, registry, &mut notes));
    }
    let rules = file.finish(registry, &mut notes);
    notes.sort();
    notes.dedup();
    let mut hints = Vec::new();
    if limits.is_empty() {
        hints.push(format!("{name}: there are no rules: it has no limits"));
    }
    hints.push(SERVICES.to_owned());
    Ok(Imported { rules, notes, hints })
}

/// One limit of the file.
#[derive(Debug)]
struct LimitadorLimit {
    namespace: String,
    name: Option<String>,
    max_value: u64,
    seconds: u64,
    conditions: Vec<String>,
    variables: Vec<String>,
    span: Span,
}

const FIELDS: [&str; 7] = ["namespace", "max_value", "seconds", "conditions", "variables", "name", "id"];

fn read(tree: &Node, problems: &mut Vec<Problem>) -> Vec<LimitadorLimit> {
    let items = match &tree.value {
        Value::List(items) => items,
        Value::Null => return Vec::new(),
        other => {
            let problem = Problem::new(tree.span, format!("invalid limits: expected a list, found {}", other.kind()));
            problems.push(problem.expected("expected limits that start with `- namespace: ...`"));
            return Vec::new();
        }
    };
    if items.len() > MAX_COUNT {
        problems.push(Problem::new(tree.span, format!("more than {MAX_COUNT} limits")));
        return Vec::new();
    }
    items.iter().filter_map(|item| LimitadorLimit::read(item, problems)).collect()
}

impl LimitadorLimit {
    fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "limit", FIELDS, problems)?;
        let namespace = fields.require("namespace", problems);
        let namespace = namespace.and_then(|node| scalar::text(node, "`namespace`", problems));
        let [max_value, seconds] = ["max_value", "seconds"].map(|name| {
            let node = fields.require(name, problems)?;
            let min = u64::from(name == "seconds");
            scalar::count(node, &format!("`{name}`"), min, problems)
        });
        let [conditions, variables] =
            ["conditions", "variables"].map(|name| fields.take(name).map(|node| texts(node, name, problems)));
        let name = fields.take("name").and_then(|node| scalar::text(node, "`name`", problems));
        let id = fields.take("id").and_then(|node| scalar::text(node, "`id`", problems));
        fields.finish(problems);
        Some(Self {
            namespace: namespace?.to_owned(),
            name: name.or(id).map(str::to_owned),
            max_value: max_value?,
            seconds: seconds?,
            conditions: conditions.unwrap_or_default(),
            variables: variables.unwrap_or_default(),
            span: node.span,
        })
    }

    fn rule(&self, number: usize, source: Source, registry: &Registry, notes: &mut Vec<Note>) -> Option<Rule> {
        let mut entries: Vec<EntryMatch> = Vec::new();
        let mut when = Vec::new();
        for condition in &self.conditions {
            match equality(condition) {
                Some((key, true, value)) if is_free(&entries, &key) && !value.contains('*') => {
                    entries.retain(|entry| entry.key != key);
                    entries.push(EntryMatch { key, value: Some(value), not: Vec::new() });
                }
                Some((key, false, value)) if is_free(&entries, &key) && !value.contains('*') => {
                    entries.retain(|entry| entry.key != key);
                    entries.push(EntryMatch { key, value: None, not: vec![value] });
                }
                _ => {
                    let alternatives = alternatives(condition);
                    if alternatives.has_nested {
                        notes.push(source.note(
                            "it has `||` in parentheses, or `? :`: requests without one of the entries that it reads are not limited by it, although limitador may not read that entry",
                        ));
                    }
                    let (translated, keys) = alternatives.translated();
                    // A condition whose entry is missing does not hold.
                    require(&mut entries, keys);
                    when.push(format!("({translated})"));
                }
            }
        }
        let when = match &*when {
            [] => None,
            [only] => Some(only[1..only.len() - 1].to_owned()),
            several => Some(several.join(" && ")),
        };
        if when.as_ref().is_some_and(|when| when.len() > MAX_CONDITION) {
            notes.push(source.note(format!("not converted: its conditions have more than {MAX_CONDITION} bytes")));
            return None;
        }
        let mut by = Vec::new();
        for variable in &self.variables {
            match entry_of(variable) {
                Some((key, "")) => {
                    // Without a limit there is no key that requires it.
                    if self.max_value == 0 {
                        require(&mut entries, vec![key.clone()]);
                    }
                    by.push(format!("descriptor({key})"));
                }
                _ => {
                    let (translated, keys) = translated(variable);
                    // A limit does not apply if a variable has no value.
                    require(&mut entries, keys);
                    by.push(cel(&translated));
                }
            }
        }
        by.dedup();
        let texts = self.conditions.iter().chain(&self.variables);
        if texts.clone().any(|text| text.contains("descriptors[") && !text.contains("descriptors[0]")) {
            notes.push(source.note(
                "it reads another descriptor than the first, but Diana matches each descriptor by itself; put the entries into one descriptor",
            ));
        }
        let label = self.name.clone().unwrap_or_else(|| number.to_string());
        let mut rule = Rule {
            name: format!("{}.{label}", self.namespace),
            origins: vec![format!("{}:{}: namespace {}", source.file, source.line, self.namespace)],
            by,
            domain: Some(self.namespace.clone()),
            descriptor: DescriptorMatch::Has(entries),
            when,
            limit: Limit::WindowOfFirst(format!("{}/{}s", self.max_value, self.seconds)),
            source,
            ..Rule::default()
        };
        if self.max_value == 0 {
            rule.limit = Limit::None;
            rule.by = vec!["domain".to_owned()];
            rule.deny = vec![self.namespace.clone()];
        }
        // A key is a text; limitador converts numbers and others to one.
        if RuleFile::why_invalid(&rule, registry).is_some() {
            let as_text =
                |part: &String| expression_of(part).map_or_else(|| part.clone(), |of| cel(&format!("string({of})")));
            let converted = Rule { by: rule.by.iter().map(as_text).collect(), ..rule.clone() };
            if RuleFile::why_invalid(&converted, registry).is_none() {
                rule = converted;
            }
        }
        if let Some(reason) = RuleFile::why_invalid(&rule, registry) {
            notes.push(rule.source.note(format!("not converted: {reason}")));
            return None;
        }
        Some(rule)
    }
}

/// Returns whether a key has no condition on its value yet.
fn is_free(entries: &[EntryMatch], key: &str) -> bool {
    entries.iter().all(|entry| entry.key != key || entry.value.is_none() && entry.not.is_empty())
}

/// Adds keys that entries must have, with any value.
fn require(entries: &mut Vec<EntryMatch>, keys: Vec<String>) {
    for key in keys {
        if entries.iter().all(|entry| entry.key != key) {
            entries.push(EntryMatch { key, ..EntryMatch::default() });
        }
    }
}

/// Writes an expression as a part of `by`. Quotes within it are not escaped.
fn cel(expression: &str) -> String {
    format!("cel(\"{expression}\")")
}

/// Returns the expression of such a part.
fn expression_of(part: &str) -> Option<&str> {
    part.strip_prefix("cel(\"")?.strip_suffix("\")")
}

fn texts(node: &Node, name: &str, problems: &mut Vec<Problem>) -> Vec<String> {
    let what = format!("`{name}`");
    let nodes = scalar::one_or_more(node).into_iter();
    nodes.filter_map(|node| scalar::text(node, &what, problems).map(str::to_owned)).collect()
}
