//! Envoy: the descriptors of envoyproxy/ratelimit become rules for Envoy's requests.
//!
//! A descriptor with a `rate_limit` is a rule with a fixed window, which both align to the clock. It matches descriptors
//! with exactly the entries on the path to it; those without a value, or with a pattern, are parts of `by`. Among siblings
//! envoyproxy/ratelimit takes the exact value, else the first matching pattern, else the descriptor without a value; Diana
//! applies all rules that match, so a rule excludes the values of the siblings before it.

mod syntax;

use crate::rule_file::{DescriptorMatch, EntryMatch, Limit, Rule, RuleFile, Source};
use crate::{Imported, MAX_OUTPUT, Note, NoteKind, SERVICES};
use diana_rules::document::{Format, Span};
use diana_rules::{Document, Problem, Problems, Registry};
use syntax::{Descriptor, RateLimit};

/// The longest key that can have a value in YAML.
const MAX_KEY: usize = 1_000;

/// Converts the configuration of envoyproxy/ratelimit to a rule file.
///
/// ```
/// use diana_import::import_envoy;
/// use diana_rules::Registry;
///
/// let yaml = "\
/// domain: edge
/// descriptors:
///   - key: remote_address
///     rate_limit: {unit: second, requests_per_unit: 10}
/// ";
/// let imported = import_envoy("config.yaml", yaml, &Registry::default()).unwrap();
/// assert!(imported.notes.is_empty());
/// assert!(imported.rules.ends_with("\
/// rules:
///   ## config.yaml:3: remote_address
///   - name: edge.remote_address
///     by: descriptor(remote_address)
///     match:
///       domain: edge
///       descriptor: [remote_address]
///     limit: 10/s
///     algorithm: fixed_window
/// "), "{}", imported.rules);
/// ```
pub fn import_envoy(name: &str, text: &str, registry: &Registry) -> Result<Imported, Box<Problems>> {
    let document = Document::new(name, text).with_format(Format::Yaml);
    let tree = document.parse().map_err(Box::new)?;
    let mut problems = Vec::new();
    let config = syntax::read(&tree, &mut problems);
    if !problems.is_empty() {
        return Err(Box::new(document.problems(problems)));
    }
    let lines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
    let header = vec![format!("Converted from {name} by `diana import envoy`, domain {}.", config.domain)];
    let file = RuleFile { header, suggests_envoy: true, status: Some(429), ..RuleFile::default() };
    let mut importer = Importer { name, lines, domain: &config.domain, file, notes: Vec::new(), written: 0 };
    importer.level(&config.descriptors, &DescriptorPath::default());
    if importer.written > MAX_OUTPUT {
        let what = format!("the rules would have more than {MAX_OUTPUT} bytes");
        return Err(Box::new(document.problems([Problem::new(Span::default(), what)])));
    }
    let Importer { file, mut notes, .. } = importer;
    let rules = file.finish(registry, &mut notes);
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
    hints.push(SERVICES.to_owned());
    Ok(Imported { rules, notes, hints })
}

/// The path to a descriptor.
#[derive(Clone, Debug, Default)]
struct DescriptorPath {
    label: String,
    entries: Vec<EntryMatch>,
    /// The keys whose values are counted separately.
    by: Vec<String>,
}

struct Importer<'a> {
    name: &'a str,
    /// The offset of the end of each line.
    lines: Vec<usize>,
    domain: &'a str,
    file: RuleFile,
    notes: Vec<Note>,
    /// The approximate size of the output.
    written: usize,
}

impl Importer<'_> {
    fn level(&mut self, descriptors: &[Descriptor], path: &DescriptorPath) {
        for (index, descriptor) in descriptors.iter().enumerate() {
            if self.written > MAX_OUTPUT {
                return;
            }
            let mut inner = path.clone();
            self.step(descriptor, descriptors, index, &mut inner);
            for (field, span) in &descriptor.unsupported {
                match *field {
                    "quota_mode" => self.note(*span, field, "not converted: Diana denies a request if any rule does"),
                    "metadata" => self.info(*span, field, "not converted: rules have no metadata"),
                    _ => self.info(*span, field, "not needed: Diana's metrics are per rule"),
                }
            }
            if let Some(limit) = &descriptor.limit {
                self.rule(descriptor, limit, &inner);
            }
            self.level(&descriptor.descriptors, &inner);
        }
    }

    /// Adds the entry of one descriptor, and excludes the siblings that take precedence.
    fn step(&mut self, descriptor: &Descriptor, siblings: &[Descriptor], index: usize, path: &mut DescriptorPath) {
        let Descriptor { key, value, .. } = descriptor;
        path.label.push_str(&format!("-{key}"));
        if !value.is_empty() {
            path.label.push_str(&format!("-{value}"));
        }
        let is_pattern = value.contains('*');
        // Exact values first, then patterns in the order of the file, then those without a value.
        let is_before = |at: usize, other: &Descriptor| match (value.is_empty(), is_pattern) {
            (false, false) => false,
            (false, true) if other.value.contains('*') => at < index,
            (false, true) => !other.value.is_empty() && matches_pattern(value, &other.value),
            (true, _) => true,
        };
        let before = siblings.iter().enumerate().filter(|(_, other)| other.key == *key && other.value != *value);
        let not = before.filter(|(at, other)| is_before(*at, other)).map(|(_, other)| other.value.clone());
        let not = not.collect::<Vec<_>>();
        self.written += key.len() + value.len() + not.iter().map(|value| value.len() + 4).sum::<usize>();
        if value.is_empty() || is_pattern && !descriptor.share_threshold {
            path.by.push(key.clone());
        }
        let value = (!value.is_empty()).then(|| value.clone());
        path.entries.push(EntryMatch { key: key.clone(), value, not });
    }

    fn rule(&mut self, descriptor: &Descriptor, limit: &RateLimit, path: &DescriptorPath) {
        let Some((count, unit)) = limit.rate else {
            let what = "unlimited, so no rule is needed; sibling rules exclude it";
            self.info(limit.span, "rate_limit", what);
            return;
        };
        for name in &limit.replaces {
            let what = format!(
                "not converted: it replaces `{name}`, but in Diana both rules apply; exclude these requests from that rule with `match.when`"
            );
            self.note(limit.span, "replaces", what);
        }
        let label = path.label.trim_start_matches('-');
        let mut rule = Rule {
            name: format!("{}.{}", self.domain, limit.name.as_deref().unwrap_or(label)),
            origins: vec![format!("{}:{}: {label}", self.name, self.line(descriptor.span))],
            domain: Some(self.domain.to_owned()),
            descriptor: DescriptorMatch::Exactly(path.entries.clone()),
            shadow: descriptor.shadow_mode,
            source: self.source(limit.span, "rate_limit"),
            ..Rule::default()
        };
        let is_denied = count == 0;
        let reason = if is_denied { self.why_not_denied() } else { why_not(path) };
        let is_too_long =
            |entry: &EntryMatch| entry.key.len() > MAX_KEY && (entry.value.is_some() || !entry.not.is_empty());
        let too_long = path.entries.iter().any(is_too_long).then_some("a key with a value is too long");
        if let Some(reason) = reason.or(too_long) {
            self.note(limit.span, "rate_limit", format!("not converted: {reason}"));
            return;
        }
        if is_denied {
            // Every request has the domain, so all are denied.
            rule.by = vec!["domain".to_owned()];
            rule.deny = vec![self.domain.to_owned()];
        } else {
            rule.by = path.by.iter().map(|key| format!("descriptor({key})")).collect();
            rule.limit = Limit::Window(format!("{count}/{unit}"));
        }
        self.written += path.label.len();
        self.file.rules.push(rule);
    }

    /// Returns why a limit of 0 can't be converted.
    fn why_not_denied(&self) -> Option<&'static str> {
        let is_address_byte = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
        let looks_like_address = self.domain.contains(['.', ':']) && self.domain.bytes().all(is_address_byte);
        looks_like_address.then_some("the domain looks like an address, which `deny` compares with the client's")
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

/// Returns why a path can't be a rule.
fn why_not(path: &DescriptorPath) -> Option<&'static str> {
    let is_repeated = |(index, key): (usize, &String)| path.by[..index].contains(key);
    if path.by.iter().enumerate().any(is_repeated) {
        return Some("it counts by two entries with the same key");
    }
    let is_odd = |key: &String| key.trim() != key || key.is_empty();
    path.by.iter().any(is_odd).then_some("a key begins or ends with a space, or is empty")
}

/// Returns whether `text` matches the pattern `value`.
fn matches_pattern(value: &str, text: &str) -> bool {
    let mut parts = value.split('*');
    let Some(mut rest) = parts.next().and_then(|beginning| text.strip_prefix(beginning)) else { return false };
    let parts = parts.collect::<Vec<_>>();
    let Some((end, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::matches_pattern;

    #[test]
    fn patterns_match() {
        let matching = [("foo*", "foobar"), ("a*b*c", "a1b2c"), ("*", ""), ("x", "x")];
        assert!(matching.iter().all(|(value, text)| matches_pattern(value, text)));
        let others = [("foo*", "fo"), ("a*b*c", "acb"), ("ab*b", "ab"), ("x", "xy")];
        assert!(!others.iter().any(|(value, text)| matches_pattern(value, text)));
    }
}
