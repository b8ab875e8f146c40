//! Envoy: the descriptors of envoyproxy/ratelimit become rules.
//!
//! A descriptor with a `rate_limit` is a rule with a fixed window, which both align to the clock. On the path to it, a
//! key with a value is a condition, and one without is a part of `by`. Among siblings envoyproxy/ratelimit takes the
//! exact value, else the first matching pattern, else the descriptor without a value; Diana applies all rules that
//! match, so a rule excludes the values of the siblings before it.

mod key;
mod syntax;

use super::expression::Expression;
use super::rule::{Limit, Rule, RuleFile, Source, is_network};
use super::{GATEWAY, Imported, MAX_CONDITION, MAX_INPUT, Note, NoteKind};
use diana_rules::document::{Format, Span};
use diana_rules::{Document, Problem, Problems};
use key::{Key, matches_pattern, pattern};
use std::collections::{BTreeMap, HashMap};
use syntax::{Descriptor, RateLimit};

/// Converts the configuration of envoyproxy/ratelimit to a rule file.
///
/// ```
/// use diana_server::import::import_envoy;
///
/// let yaml = "\
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: {unit: second, requests_per_unit: 10}
/// ";
/// let imported = import_envoy("config.yaml", yaml).unwrap();
/// assert!(imported.notes.is_empty());
/// assert!(imported.rules.ends_with("\
/// rules:
///   ## config.yaml:3: remote_address
///   - name: edge.remote_address
///     by: ip/128
///     limit: 10/s
///     algorithm: fixed_window
/// "), "{}", imported.rules);
/// ```
pub fn import_envoy(name: &str, text: &str) -> Result<Imported, Box<Problems>> {
    let document = Document::new(name, text).with_format(Format::Yaml);
    let tree = document.parse().map_err(Box::new)?;
    let mut problems = Vec::new();
    let config = syntax::read(&tree, &mut problems);
    if !problems.is_empty() {
        return Err(Box::new(document.problems(problems)));
    }
    let lines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let header = vec![
        format!("Converted from {name} by `diana import envoy`, domain {}.", config.domain),
        "Envoy's routes define which requests have which keys; each rule applies to every request that has its keys."
            .to_owned(),
    ];
    let suggested = vec!["listen: 0.0.0.0:8080".to_owned(), "upstream: http://127.0.0.1:3000".to_owned()];
    let file = RuleFile { header, suggested, status: Some(429), ..RuleFile::default() };
    let mut importer = Importer {
        name,
        lines,
        domain: &config.domain,
        names: BTreeMap::new(),
        numbers: BTreeMap::new(),
        file,
        denies_all: Vec::new(),
        notes: Vec::new(),
        written: 0,
    };
    importer.level(&config.descriptors, &DescriptorPath::default());
    if importer.written > MAX_INPUT {
        let what = format!("the rules would have more than {MAX_INPUT} bytes");
        return Err(Box::new(document.problems([Problem::new(Span::default(), what)])));
    }
    importer.merge();
    let Importer { mut file, denies_all, mut notes, .. } = importer;
    // No rule after one that denies everything can be reached.
    file.rules.extend(denies_all);
    let rules = file.finish(&mut notes);
    notes.sort();
    notes.dedup();
    let mut hints = Vec::new();
    if rules.ends_with("\nrules: []\n") {
        let what = if config.has_limits() {
            "none of its limits could be converted; see the notes"
        } else {
            "it has no `rate_limit`"
        };
        hints.push(format!("{name}: there are no rules: {what}"));
    }
    hints.push(GATEWAY.to_owned());
    Ok(Imported { rules, notes, hints })
}

/// The path to a descriptor, as a rule.
#[derive(Clone, Debug)]
struct DescriptorPath {
    label: String,
    /// The match and the key, as far as fields can express them.
    rule: Rule,
    /// The rest, as a condition.
    when: Expression,
    /// The condition that a request has the keys without a value. Where requests are counted, `by` ensures it.
    present: Expression,
}

impl Default for DescriptorPath {
    fn default() -> Self {
        Self { label: String::new(), rule: Rule::default(), when: Expression::True, present: Expression::True }
    }
}

struct Importer<'a> {
    name: &'a str,
    /// The offset of the end of each line.
    lines: Vec<usize>,
    domain: &'a str,
    /// The names of keys under `identity`.
    names: BTreeMap<String, String>,
    /// The last suffix of each name that several keys would have.
    numbers: BTreeMap<String, usize>,
    file: RuleFile,
    /// Rules that deny every request.
    denies_all: Vec<Rule>,
    notes: Vec<Note>,
    /// The approximate size of the output.
    written: usize,
}

impl Importer<'_> {
    fn level(&mut self, descriptors: &[Descriptor], path: &DescriptorPath) {
        for (index, descriptor) in descriptors.iter().enumerate() {
            if self.written > MAX_INPUT {
                return;
            }
            let key = self.key(descriptor);
            let is_denied = descriptor.limit.as_ref().is_some_and(|limit| matches!(limit.rate, Some((0, _))));
            let mut inner = path.clone();
            inner.label.push_str(&format!("-{}", descriptor.key));
            self.step(&key, descriptor, descriptors, index, &mut inner);
            self.written += inner.when.to_condition().map_or(0, |when| when.len())
                + inner.rule.allow.iter().map(String::len).sum::<usize>();
            for (field, span) in &descriptor.unsupported {
                match *field {
                    "quota_mode" => self.note(*span, field, "not converted: Diana denies a request if any rule does"),
                    "metadata" => self.info(*span, field, "not converted: rules have no metadata"),
                    _ => self.info(*span, field, "not needed: Diana's metrics are per rule"),
                }
            }
            match &descriptor.limit {
                Some(limit) if is_denied => self.deny(&key, descriptor, limit, path, &inner),
                Some(limit) => self.rule(descriptor, limit, &inner),
                None => {}
            }
            self.level(&descriptor.descriptors, &inner);
        }
    }

    /// Returns the meaning of a key, with a unique name.
    fn key(&mut self, descriptor: &Descriptor) -> Key {
        let written = &descriptor.key;
        let mut key = Key::of(written);
        if written == "masked_remote_address" && !self.names.contains_key(written) {
            self.names.insert(written.clone(), String::new());
            let what =
                "`ip/128` counts each address separately; if Envoy's routes mask more bits, write for example `ip/24`";
            self.note(descriptor.span, &format!("key {written}"), what);
        }
        let Key::Named { name, source, hint } = &mut key else { return key };
        if let Some(known) = self.names.get(written) {
            name.clone_from(known);
            return key;
        }
        let wanted = name.clone();
        while self.file.identity.contains_key(name) {
            // Continues from the last number tried, so that thousands of equal names take linear time.
            let number = self.numbers.entry(wanted.clone()).or_insert(1);
            *number += 1;
            *name = format!("{wanted}_{number}");
        }
        self.names.insert(written.clone(), name.clone());
        self.file.identity.insert(name.clone(), (source.clone(), format!("{written}: {hint}")));
        let what = format!("`{source}` is a guess: {hint}");
        self.note(descriptor.span, &format!("key {written}"), what);
        key
    }

    /// Adds the condition of one descriptor, and excludes the siblings that take precedence.
    fn step(
        &mut self,
        key: &Key,
        descriptor: &Descriptor,
        siblings: &[Descriptor],
        index: usize,
        path: &mut DescriptorPath,
    ) {
        let value = &descriptor.value;
        let is_pattern = value.contains('*');
        let same_key = |other: &&Descriptor| other.key == descriptor.key && other.value != *value;
        if !value.is_empty() {
            path.label.push_str(&format!("-{value}"));
        }
        // Exact values first, then patterns in the order of the file, then those without a value.
        let before = match (value.is_empty(), is_pattern) {
            (false, false) => Vec::new(),
            (false, true) => {
                let exact = |other: &Descriptor| {
                    !other.value.contains('*') && matches_pattern(value, &other.value) && !other.value.is_empty()
                };
                let earlier =
                    siblings.get(..index).unwrap_or_default().iter().filter(|other| other.value.contains('*'));
                let exact = siblings.iter().filter(|other| exact(other));
                exact.chain(earlier).filter(same_key).collect()
            }
            (true, _) => siblings.iter().filter(same_key).collect::<Vec<_>>(),
        };
        let (patterns, exact): (Vec<_>, Vec<_>) = before.into_iter().partition(|other| other.value.contains('*'));
        let exact = exact.into_iter().map(|other| other.value.clone()).collect::<Vec<_>>();
        match key.expression() {
            None => {
                if is_pattern {
                    self.note(
                        descriptor.span,
                        "value",
                        format!("`{value}` not converted: write the network into `match.ip`"),
                    );
                } else if !value.is_empty() {
                    path.rule.ips = vec![value.clone()];
                }
                if !value.is_empty() && !is_network(value) {
                    path.when = Expression::False;
                }
                if !patterns.is_empty() {
                    self.note(
                        descriptor.span,
                        "value",
                        "patterns of addresses in sibling descriptors are counted by this rule too",
                    );
                }
                path.rule.allow.extend(exact.into_iter().filter(|other| is_network(other)));
            }
            Some(expression) => {
                let condition = match (value.is_empty(), is_pattern) {
                    (true, _) => Expression::True,
                    (false, true) => pattern(expression, value),
                    (false, false) => key.field(value, &mut path.rule),
                };
                let of_siblings = patterns.iter().fold(Expression::one_of(expression, &exact), |any, other| {
                    any.or(pattern(expression, &other.value))
                });
                let when = std::mem::replace(&mut path.when, Expression::True);
                path.when = when.and(condition).and(of_siblings.not());
            }
        }
        if value.is_empty()
            && let Key::Named { name, .. } = key
        {
            let present = std::mem::replace(&mut path.present, Expression::True);
            path.present = present.and(Expression::equals(name, "").not());
        }
        let counted_separately = value.is_empty() || (is_pattern && !descriptor.share_threshold);
        let by = key.by();
        if counted_separately && !path.rule.by.contains(&by) {
            path.rule.by.push(by);
        }
    }

    fn rule(&mut self, descriptor: &Descriptor, limit: &RateLimit, path: &DescriptorPath) {
        let Some((count, unit)) = limit.rate else {
            let what = "unlimited, so no rule is needed; sibling rules exclude it";
            self.info(limit.span, "rate_limit", what);
            return;
        };
        if path.when == Expression::False {
            return self.no_address(limit);
        }
        let mut rule = Rule { when: path.when.to_condition(), ..path.rule.clone() };
        self.describe(&mut rule, descriptor, limit, path);
        rule.limit = Limit::Window(format!("{count}/{unit}"));
        self.add(rule);
    }

    /// Converts a limit of 0, which denies everything that has the keys: for a single key with a value, `deny` has that
    /// value, else every address.
    fn deny(
        &mut self,
        key: &Key,
        descriptor: &Descriptor,
        limit: &RateLimit,
        outer: &DescriptorPath,
        path: &DescriptorPath,
    ) {
        if path.when == Expression::False {
            return self.no_address(limit);
        }
        let value = &descriptor.value;
        // A text that parses as an address is compared with the client's, whatever the key is.
        let is_address_byte = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
        let looks_like_address = value.contains(['.', ':']) && value.bytes().all(is_address_byte);
        let is_named = !value.is_empty() && !value.contains('*') && (*key == Key::Address || !looks_like_address);
        let mut rule = match outer.label.is_empty() && is_named {
            true => Rule { by: vec![key.by()], deny: vec![value.clone()], ..Rule::default() },
            false => Rule {
                by: Vec::new(),
                when: path.when.clone().and(path.present.clone()).to_condition(),
                deny: vec!["0.0.0.0/0".to_owned(), "::/0".to_owned()],
                ..path.rule.clone()
            },
        };
        self.describe(&mut rule, descriptor, limit, path);
        self.add(rule);
    }

    /// Adds a rule, unless its condition is too long.
    fn add(&mut self, rule: Rule) {
        let condition = rule.when.as_ref().map_or(0, String::len);
        if condition > MAX_CONDITION {
            let what = format!(
                "not converted: its condition would have {condition} bytes, but the maximum is {MAX_CONDITION}; write the rules manually"
            );
            self.notes.push(rule.source.note(what));
            return;
        }
        let matched = [&rule.hosts, &rule.paths, &rule.methods, &rule.ips, &rule.allow];
        let matches_all = rule.when.is_none() && matched.iter().all(|values| values.is_empty());
        let denies_all = matches_all && rule.deny.len() > 1 && !rule.shadow;
        if denies_all { self.denies_all.push(rule) } else { self.file.rules.push(rule) }
    }

    /// Removes rules that duplicate an earlier one: `path` and `:path` are the same to Diana.
    fn merge(&mut self) {
        let mut known: HashMap<Rule, String> = HashMap::new();
        let notes = &mut self.notes;
        let mut is_first = |rule: &mut Rule| match known.get(&rule.content()) {
            None => {
                known.insert(rule.content(), rule.origins.join(", "));
                true
            }
            Some(first) => {
                let what = format!(
                    "same limit for the same requests as {first}, so one rule covers both; Envoy counts them separately"
                );
                notes.push(rule.source.note(what));
                false
            }
        };
        self.file.rules.retain_mut(&mut is_first);
        self.denies_all.retain_mut(&mut is_first);
    }

    fn no_address(&mut self, limit: &RateLimit) {
        let what = "not converted: invalid address; write an address or a network";
        self.note(limit.span, "rate_limit", what);
    }

    /// Sets the common fields of all rules.
    fn describe(&mut self, rule: &mut Rule, descriptor: &Descriptor, limit: &RateLimit, path: &DescriptorPath) {
        for name in &limit.replaces {
            let what = format!(
                "not converted: it replaces `{name}`, but in Diana both rules apply; exclude these requests from that rule with `match.when`"
            );
            self.note(limit.span, "replaces", what);
        }
        let label = path.label.trim_start_matches('-');
        rule.name = format!("{}.{}", self.domain, limit.name.as_deref().unwrap_or(label));
        rule.origins = vec![format!("{}:{}: {label}", self.name, self.line(descriptor.span))];
        rule.shadow = descriptor.shadow_mode;
        rule.source = self.source(limit.span, "rate_limit");
    }

    /// Adds a note about something that the rules don't do, or only approximately.
    fn note(&mut self, span: Span, directive: &str, what: impl Into<String>) {
        let note = self.source(span, directive).note(what);
        self.notes.push(note);
    }

    /// Adds a note about something that the rules don't need.
    fn info(&mut self, span: Span, directive: &str, what: impl Into<String>) {
        let note = self.source(span, directive).note(what);
        self.notes.push(Note { kind: NoteKind::Info, ..note });
    }

    fn source(&self, span: Span, directive: &str) -> Source {
        let directive = directive.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Source { file: self.name.to_owned(), line: self.line(span), directive }
    }

    fn line(&self, span: Span) -> usize {
        self.lines.partition_point(|end| *end < span.start) + 1
    }
}
