//! A rule file as importers build it, before it is written as text.

use crate::yaml::{comment, list, scalar};
use crate::{MAX_OUTPUT, Note, NoteKind};
use diana_rules::document::Format;
use diana_rules::{Document, Registry};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

/// The longest name of a rule.
const MAX_NAME: usize = 64;
/// The maximum number of segments of a path in a rule's field, with some room for `*/**` after it.
const MAX_SEGMENTS: usize = 60;

/// Returns whether a rule's field accepts this method. Other methods go into an expression, which accepts any text.
pub(crate) fn is_usual_method(method: &str) -> bool {
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"].contains(&method)
}

/// Returns whether a path in a rule's field matches itself literally, also with a star after it, and can occur: `..`
/// never does, and `:id` or something like a regular expression would be reported as a mistake.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let has_signs = path.contains(['*', '?', '[', ']', '{', '}', '\\', '!', '#', ' ', '(', ')', '|', '^', '$', '+']);
    let segments = || path.split('/');
    path.starts_with('/')
        && !has_signs
        && !segments().any(|segment| [".", ".."].contains(&segment) || segment.starts_with([':', '<']))
        && segments().count() <= MAX_SEGMENTS
}

/// Returns whether a host in a rule's field matches itself literally.
pub(crate) fn is_plain_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_allowed)
    };
    host.split('.').all(is_label)
}

/// The result of an importer.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleFile {
    /// The comment at the top.
    pub(crate) header: Vec<String>,
    /// A suggestion for `gateway`, written as a comment: fields and values as YAML.
    pub(crate) suggested: Vec<String>,
    /// Whether `services` for Envoy is suggested.
    pub(crate) suggests_envoy: bool,
    /// The proxies whose forwarded addresses are trusted.
    pub(crate) trusted_proxies: Vec<String>,
    /// The sources of named keys: name, source, and a comment.
    pub(crate) identity: BTreeMap<String, (String, String)>,
    /// The status of a denial, if it is not 503.
    pub(crate) status: Option<u16>,
    pub(crate) rules: Vec<Rule>,
}

/// One rule. Empty fields are not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// The rule's origins, one per line.
    pub(crate) origins: Vec<String>,
    /// The key; empty means that all requests are counted together.
    pub(crate) by: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) ips: Vec<String>,
    /// The domain of requests from Envoy.
    pub(crate) domain: Option<String>,
    pub(crate) descriptor: DescriptorMatch,
    pub(crate) when: Option<String>,
    pub(crate) limit: Limit,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) shadow: bool,
    pub(crate) status: Option<u16>,
    /// The level at which denials are logged.
    pub(crate) log: Option<&'static str>,
    /// The maximum memory of its counts.
    pub(crate) memory: Option<String>,
    /// The source for notes about the whole rule.
    pub(crate) source: Source,
}

/// The entries of the descriptors that a rule matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum DescriptorMatch {
    /// The descriptor has these entries, and maybe others.
    Has(Vec<EntryMatch>),
    /// The descriptor has exactly these entries, in this order.
    Exactly(Vec<EntryMatch>),
}

impl Default for DescriptorMatch {
    fn default() -> Self {
        Self::Has(Vec::new())
    }
}

/// An entry of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct EntryMatch {
    pub(crate) key: String,
    /// The value, which may have stars; any, if there is none.
    pub(crate) value: Option<String>,
    /// The values that do not match.
    pub(crate) not: Vec<String>,
}

impl DescriptorMatch {
    fn entries(&self) -> &[EntryMatch] {
        let (Self::Has(entries) | Self::Exactly(entries)) = self;
        entries
    }
}

impl fmt::Display for DescriptorMatch {
    /// Formats it as YAML on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |entry: &EntryMatch| {
            let key = scalar(&entry.key);
            let not = entry.not.iter().map(|value| scalar(value)).collect::<Vec<_>>().join(", ");
            match (&entry.value, entry.not.is_empty()) {
                (Some(value), true) => format!("{key}: {}", scalar(value)),
                (Some(value), false) => format!("{key}: {{is: {}, not: [{not}]}}", scalar(value)),
                (None, true) => format!("{key}: null"),
                (None, false) => format!("{key}: {{not: [{not}]}}"),
            }
        };
        let is_bare = |entry: &EntryMatch| entry.value.is_none() && entry.not.is_empty();
        match self {
            Self::Has(entries) => write!(f, "{{{}}}", entries.iter().map(pair).collect::<Vec<_>>().join(", ")),
            Self::Exactly(entries) => {
                let item = |entry: &EntryMatch| {
                    if is_bare(entry) { scalar(&entry.key) } else { format!("{{{}}}", pair(entry)) }
                };
                write!(f, "[{}]", entries.iter().map(item).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// A directive or field of the original configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) directive: String,
}

/// The limit of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Limit {
    /// No limit: the rule only denies the keys in `deny`.
    #[default]
    None,
    Leaky {
        rate: String,
        burst: u64,
        delay: Delay,
    },
    Window(String),
    /// A window that begins with the first request.
    WindowOfFirst(String),
    Concurrent(u64),
    /// More than `limit` are delayed.
    ConcurrentWithBurst {
        limit: u64,
        burst: u64,
        delay: String,
    },
    Bandwidth {
        rate: String,
        after: Option<String>,
    },
}

/// The requests that a leaky bucket delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Delay {
    /// Delays each request over the rate.
    #[default]
    Each,
    /// Delays only requests over this number.
    Over(u64),
    /// Delays no request.
    Never,
}

impl RuleFile {
    /// Writes the file as text that passes `diana check`: rules that would not are omitted, and reported in `notes`.
    pub(crate) fn finish(mut self, registry: &Registry, notes: &mut Vec<Note>) -> String {
        self.name_rules();
        loop {
            let (text, starts) = self.write();
            let rejected = rejected(&text, &starts, registry);
            if rejected.is_empty() {
                return text;
            }
            let mut index = 0;
            self.rules.retain(|rule| {
                let reason = rejected.get(&index);
                notes.extend(reason.map(|reason| rule.source.note(format!("not converted: {reason}"))));
                index += 1;
                reason.is_none()
            });
        }
    }

    /// Returns why a rule would be rejected, if its expressions come from the original configuration.
    pub(crate) fn why_invalid(rule: &Rule, registry: &Registry) -> Option<String> {
        let mut file = Self { rules: vec![rule.clone()], ..Self::default() };
        file.name_rules();
        let (text, _) = file.write();
        let document = Document::new("imported", text).with_format(Format::Yaml);
        let problems = diana_rules::RuleFile::read_with(&document, registry, |_| None).err()?;
        problems.iter().next().map(|problem| problem.what().to_owned())
    }

    /// Returns the text, and the offset at which each rule begins.
    fn write(&self) -> (String, Vec<usize>) {
        let mut text = String::new();
        for line in &self.header {
            comment(&mut text, "", line);
        }
        self.write_gateway(&mut text);
        if !self.identity.is_empty() {
            text.push_str("\nidentity:\n");
            for (name, (source, note)) in &self.identity {
                comment(&mut text, "  ", note);
                line(&mut text, "  ", name, &scalar(source));
            }
        }
        if let Some(status) = self.status {
            text.push('\n');
            line(&mut text, "", "status", &status.to_string());
        }
        text.push_str(if self.rules.is_empty() { "\nrules: []\n" } else { "\nrules:\n" });
        let mut starts = Vec::with_capacity(self.rules.len());
        for (index, rule) in self.rules.iter().enumerate() {
            if index > 0 {
                text.push('\n');
            }
            starts.push(text.len());
            rule.write(&mut text);
        }
        (text, starts)
    }

    /// Writes the known part of `gateway`; the rest as a comment.
    fn write_gateway(&self, text: &mut String) {
        if self.suggests_envoy {
            text.push('\n');
            comment(text, "", "To serve with these rules, add the address at which Envoy asks:");
            comment(text, "", "services: {envoy: 127.0.0.1:8081}");
        }
        if self.trusted_proxies.is_empty() {
            if !self.suggested.is_empty() {
                text.push('\n');
                comment(text, "", "To serve with these rules, add a gateway with its addresses and upstreams:");
                comment(text, "", "gateway:");
                self.suggested.iter().for_each(|field| comment(text, "", &format!("  {field}")));
            }
            return;
        }
        text.push_str("\ngateway:\n");
        self.suggested.iter().for_each(|field| comment(text, "  ", field));
        list(text, "  ", "trusted_proxies", &self.trusted_proxies);
    }

    /// Gives each rule a unique name of valid characters.
    fn name_rules(&mut self) {
        let mut taken = BTreeSet::new();
        let mut last_suffix: BTreeMap<String, usize> = BTreeMap::new();
        for rule in &mut self.rules {
            let base = name(&rule.name);
            let mut unique = base.clone();
            while !taken.insert(unique.clone()) {
                // Continues from the last number tried, so that thousands of equal names take linear time.
                let number = last_suffix.entry(base.clone()).or_insert(1);
                *number += 1;
                let suffix = format!("-{number}");
                unique = base.chars().take(MAX_NAME - suffix.len()).collect::<String>() + &suffix;
            }
            rule.name = unique;
        }
    }
}

/// Returns the rules that `diana check` would reject, by their number, each with the reason. A rule is the text between
/// two `starts`.
fn rejected(text: &str, starts: &[usize], registry: &Registry) -> BTreeMap<usize, String> {
    let after = |at: usize| starts.partition_point(|start| *start <= at);
    if text.len() > MAX_OUTPUT {
        // The first rule that ends after the last byte that is read.
        let first = after(MAX_OUTPUT).saturating_sub(1);
        return (first..starts.len())
            .map(|index| (index, format!("the rules have more than {MAX_OUTPUT} bytes")))
            .collect();
    }
    let document = Document::new("imported", text).with_format(Format::Yaml);
    let read = diana_rules::RuleFile::read_with(&document, registry, |_| None);
    let Err(problems) = read else { return BTreeMap::new() };
    let rejections = problems.iter().filter_map(|problem| {
        let index = after(problem.span().start).checked_sub(1)?;
        Some((index, format!("rejected by `diana check`: {}", problem.what())))
    });
    // Of several problems of one rule, the first is reported.
    rejections.collect::<Vec<_>>().into_iter().rev().collect()
}

impl Source {
    /// Creates a note about something that the rules don't do.
    pub(crate) fn note(&self, what: impl Into<String>) -> Note {
        let Self { file, line, directive } = self.clone();
        Note { file, line, directive, what: what.into(), kind: NoteKind::Difference }
    }
}

impl Rule {
    /// Returns the limit and its conditions, without the name, the status, the log level, the memory and the origins. Of rules with equal content,
    /// all but the first could never deny anything.
    pub(crate) fn content(&self) -> Self {
        let (name, origins) = (String::new(), Vec::new());
        Self { name, origins, status: None, log: None, memory: None, source: Source::default(), ..self.clone() }
    }

    fn write(&self, text: &mut String) {
        for origin in &self.origins {
            comment(text, "  ", origin);
        }
        let _ = writeln!(text, "  - name: {}", scalar(&self.name));
        let indent = "    ";
        match &*self.by {
            [] => line(text, indent, "by", "global"),
            [one] => line(text, indent, "by", &scalar(one)),
            several => list(text, indent, "by", several),
        }
        let matched = [("host", &self.hosts), ("path", &self.paths), ("method", &self.methods), ("ip", &self.ips)];
        let is_for_envoy = self.domain.is_some() || !self.descriptor.entries().is_empty();
        if self.when.is_some() || is_for_envoy || matched.iter().any(|(_, values)| !values.is_empty()) {
            let _ = writeln!(text, "{indent}match:");
            for (field, values) in matched {
                match &**values {
                    [] => {}
                    [one] => line(text, "      ", field, &scalar(one)),
                    several => list(text, "      ", field, several),
                }
            }
            if let Some(domain) = &self.domain {
                line(text, "      ", "domain", &scalar(domain));
            }
            if !self.descriptor.entries().is_empty() {
                line(text, "      ", "descriptor", &self.descriptor.to_string());
            }
            if let Some(when) = &self.when {
                line(text, "      ", "when", &scalar(when));
            }
        }
        self.limit.write(text, indent);
        if !self.allow.is_empty() {
            list(text, indent, "allow", &self.allow);
        }
        if !self.deny.is_empty() {
            list(text, indent, "deny", &self.deny);
        }
        if self.shadow {
            line(text, indent, "shadow", "true");
        }
        if let Some(status) = self.status {
            line(text, indent, "status", &status.to_string());
        }
        if let Some(log) = self.log {
            line(text, indent, "log", log);
        }
        if let Some(memory) = &self.memory {
            line(text, indent, "memory", memory);
        }
    }
}

impl Limit {
    fn write(&self, text: &mut String, indent: &str) {
        match self {
            Self::None => {}
            Self::Leaky { rate, burst, delay } => {
                line(text, indent, "limit", rate);
                line(text, indent, "algorithm", "leaky_bucket");
                line(text, indent, "burst", &burst.to_string());
                match delay {
                    Delay::Each => {}
                    Delay::Over(requests) => line(text, indent, "delay", &requests.to_string()),
                    Delay::Never => line(text, indent, "nodelay", "true"),
                }
            }
            Self::Window(rate) => {
                line(text, indent, "limit", rate);
                line(text, indent, "algorithm", "fixed_window");
            }
            Self::WindowOfFirst(rate) => {
                line(text, indent, "limit", rate);
                line(text, indent, "algorithm", "fixed_window");
                line(text, indent, "opens", "first_request");
            }
            Self::Concurrent(count) => line(text, indent, "concurrent", &count.to_string()),
            Self::ConcurrentWithBurst { limit, burst, delay } => {
                let value = format!("{{limit: {limit}, burst: {burst}, delay: {delay}}}");
                line(text, indent, "concurrent", &value);
            }
            Self::Bandwidth { rate, after: None } => line(text, indent, "bandwidth", rate),
            Self::Bandwidth { rate, after: Some(after) } => {
                line(text, indent, "bandwidth", &format!("{{rate: {rate}, after: {after}}}"));
            }
        }
    }
}

fn line(text: &mut String, indent: &str, field: &str, value: &str) {
    let _ = writeln!(text, "{indent}{field}: {value}");
}

/// Returns a readable name: keeps letters, digits, `.`, `_` and `-`, and replaces everything between by one `-`.
pub(crate) fn name(base: &str) -> String {
    let mut name = String::new();
    for character in base.chars() {
        match character {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') => name.push(c),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
        if name.len() == MAX_NAME {
            break;
        }
    }
    let name = name
        .split('-')
        .map(|word| word.trim_matches('.'))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join("-");
    if name.is_empty() { "rule".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable_and_unique() {
        assert_eq!(name("login /api/v1/*.pdf"), "login-api-v1-pdf");
        assert_eq!(name("///"), "rule");
        assert_eq!(name(&"x".repeat(100)).len(), 64);
        let rule = |name: &str| Rule { name: name.to_owned(), ..Rule::default() };
        let long = "y".repeat(80);
        let mut file = RuleFile {
            rules: vec![rule("a"), rule("a"), rule("a-2"), rule("a"), rule(&long), rule(&long)],
            ..RuleFile::default()
        };
        file.name_rules();
        let names = file.rules.iter().map(|rule| rule.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names[..4], ["a", "a-2", "a-2-2", "a-3"]);
        assert_eq!(names[5], format!("{}-2", "y".repeat(62)));
    }
}
