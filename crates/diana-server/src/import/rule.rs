//! A rule file as importers put it together, before it becomes text.

use super::yaml::{comment, list, scalar};
use super::{LARGEST, Note, NoteKind};
use diana_rules::{Document, Format};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

/// The longest name of a rule.
const LONGEST_NAME: usize = 64;
/// The most segments of a path in a rule's field, with some room for `*/**` behind it.
const MOST_SEGMENTS: usize = 60;

/// Whether a rule may ask for this method in its field. Others are asked for in an expression, which takes any text.
pub(crate) fn is_usual_method(method: &str) -> bool {
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"].contains(&method)
}

/// Whether a path means itself in a rule's field, also with a star behind it, and can be there: what has `..` never comes, and
/// `:id` or what looks like a regular expression would be taken for a mistake.
pub(crate) fn is_plain_path(path: &str) -> bool {
    let has_signs = path.contains(['*', '?', '[', ']', '{', '}', '\\', '!', '#', ' ', '(', ')', '|', '^', '$', '+']);
    let segments = || path.split('/');
    path.starts_with('/')
        && !has_signs
        && !segments().any(|segment| [".", ".."].contains(&segment) || segment.starts_with([':', '<']))
        && segments().count() <= MOST_SEGMENTS
}

/// Whether a host means itself in a rule's field.
pub(crate) fn is_plain_host(host: &str) -> bool {
    let is_label = |label: &str| {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty() && label.bytes().all(is_fine)
    };
    host.split('.').all(is_label)
}

/// Whether a text is an address or a network, which alone the fields for them take.
pub(crate) fn is_network(text: &str) -> bool {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let longest = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
    // `+8` and `08` are numbers, but no lengths.
    let number = |length: &str| length.parse::<u8>().ok().filter(|number| number.to_string() == length);
    let fits = |longest: u8| length.is_none_or(|length| number(length).is_some_and(|length| length <= longest));
    address.parse().map(longest).is_ok_and(fits)
}

/// Everything that an importer found.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuleFile {
    /// What to say at the top.
    pub(crate) header: Vec<String>,
    /// What `gateway` could say, for people to take over: fields and values as YAML.
    pub(crate) suggested: Vec<String>,
    /// Whose forwarded addresses are believed.
    pub(crate) trusted_proxies: Vec<String>,
    /// Where names of keys come from: name, source, and what to say about it.
    pub(crate) identity: BTreeMap<String, (String, String)>,
    /// What a refusal answers, where it is not 503.
    pub(crate) status: Option<u16>,
    pub(crate) rules: Vec<Rule>,
}

/// One rule. What is empty is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// Where it comes from, line by line.
    pub(crate) origins: Vec<String>,
    /// Whom it counts; nobody in particular is everyone together.
    pub(crate) by: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) paths: Vec<String>,
    pub(crate) methods: Vec<String>,
    pub(crate) ips: Vec<String>,
    pub(crate) when: Option<String>,
    pub(crate) limit: Limit,
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) shadow: bool,
    pub(crate) status: Option<u16>,
    /// Where notes about the whole rule point.
    pub(crate) source: Source,
}

/// A directive or field of the foreign file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) directive: String,
}

/// What a rule limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Limit {
    /// Nothing: it only refuses those of `deny`.
    #[default]
    None,
    Leaky {
        rate: String,
        burst: u64,
        delay: Delay,
    },
    Window(String),
    Concurrent(u64),
    Bandwidth {
        rate: String,
        after: Option<String>,
    },
}

/// When a leaky bucket makes requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Delay {
    /// Each beyond the rate.
    #[default]
    Each,
    /// Only those beyond so many.
    Beyond(u64),
    /// None.
    Never,
}

impl RuleFile {
    /// As text that passes `diana check`: rules that would not are left out, and told in `notes`.
    pub(crate) fn finish(mut self, notes: &mut Vec<Note>) -> String {
        self.name_rules();
        loop {
            let (text, starts) = self.write();
            let rejected = rejected(&text, &starts);
            if rejected.is_empty() {
                return text;
            }
            let mut index = 0;
            self.rules.retain(|rule| {
                let why = rejected.get(&index);
                notes.extend(why.map(|why| rule.source.note(format!("not carried over: {why}"))));
                index += 1;
                why.is_none()
            });
        }
    }

    /// As text, and where in it each rule begins.
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

    /// `gateway` as far as it is known; the rest as a comment.
    fn write_gateway(&self, text: &mut String) {
        if self.trusted_proxies.is_empty() {
            if !self.suggested.is_empty() {
                text.push('\n');
                comment(text, "", "To serve with these rules, say where Diana listens and where requests go:");
                comment(text, "", "gateway:");
                self.suggested.iter().for_each(|field| comment(text, "", &format!("  {field}")));
            }
            return;
        }
        text.push_str("\ngateway:\n");
        self.suggested.iter().for_each(|field| comment(text, "  ", field));
        list(text, "  ", "trusted_proxies", &self.trusted_proxies);
    }

    /// Gives each rule a name that no other has, of characters that names may have.
    fn name_rules(&mut self) {
        let mut taken = BTreeSet::new();
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        for rule in &mut self.rules {
            let wanted = name(&rule.name);
            let mut unique = wanted.clone();
            while !taken.insert(unique.clone()) {
                // The last number that was tried is kept, so that thousands of one name are quick to tell apart.
                let number = last.entry(wanted.clone()).or_insert(1);
                *number += 1;
                let suffix = format!("-{number}");
                unique = wanted.chars().take(LONGEST_NAME - suffix.len()).collect::<String>() + &suffix;
            }
            rule.name = unique;
        }
    }
}

/// The rules that `diana check` would reject, by their number, each with the reason. A rule is what stands between two
/// `starts`.
fn rejected(text: &str, starts: &[usize]) -> BTreeMap<usize, String> {
    let after = |at: usize| starts.partition_point(|start| *start <= at);
    if text.len() > LARGEST {
        // A rule that ends behind the last byte that is read.
        let first = after(LARGEST).saturating_sub(1);
        return (first..starts.len())
            .map(|index| (index, format!("the rules have more than {LARGEST} bytes")))
            .collect();
    }
    let document = Document::new("imported", text).with_format(Format::Yaml);
    let read = diana_rules::RuleFile::read_with(&document, &diana::registry(), |_| None);
    let Err(problems) = read else { return BTreeMap::new() };
    let found = problems.iter().filter_map(|problem| {
        let index = after(problem.span().start).checked_sub(1)?;
        Some((index, format!("a rule can't say it: {}", problem.what())))
    });
    // Of several problems of one rule, the first is told.
    found.collect::<Vec<_>>().into_iter().rev().collect()
}

impl Source {
    /// A note about something that the rules don't do.
    pub(crate) fn note(&self, what: impl Into<String>) -> Note {
        let Self { file, line, directive } = self.clone();
        Note { file, line, directive, what: what.into(), kind: NoteKind::Difference }
    }
}

impl Rule {
    /// What it limits and how, without its name, its status and where it comes from. Of rules with equal content, all but the
    /// first could never deny anything.
    pub(crate) fn content(&self) -> Self {
        let (name, origins) = (String::new(), Vec::new());
        Self { name, origins, status: None, source: Source::default(), ..self.clone() }
    }

    fn write(&self, text: &mut String) {
        for origin in &self.origins {
            comment(text, "  ", origin);
        }
        let _ = writeln!(text, "  - name: {}", scalar(&self.name));
        let within = "    ";
        match &*self.by {
            [] => line(text, within, "by", "global"),
            [one] => line(text, within, "by", &scalar(one)),
            several => list(text, within, "by", several),
        }
        let matched = [("host", &self.hosts), ("path", &self.paths), ("method", &self.methods), ("ip", &self.ips)];
        if self.when.is_some() || matched.iter().any(|(_, values)| !values.is_empty()) {
            let _ = writeln!(text, "{within}match:");
            for (field, values) in matched {
                match &**values {
                    [] => {}
                    [one] => line(text, "      ", field, &scalar(one)),
                    several => list(text, "      ", field, several),
                }
            }
            if let Some(when) = &self.when {
                line(text, "      ", "when", &scalar(when));
            }
        }
        self.limit.write(text, within);
        if !self.allow.is_empty() {
            list(text, within, "allow", &self.allow);
        }
        if !self.deny.is_empty() {
            list(text, within, "deny", &self.deny);
        }
        if self.shadow {
            line(text, within, "shadow", "true");
        }
        if let Some(status) = self.status {
            line(text, within, "status", &status.to_string());
        }
    }
}

impl Limit {
    fn write(&self, text: &mut String, within: &str) {
        match self {
            Self::None => {}
            Self::Leaky { rate, burst, delay } => {
                line(text, within, "limit", rate);
                line(text, within, "algorithm", "leaky_bucket");
                line(text, within, "burst", &burst.to_string());
                match delay {
                    Delay::Each => {}
                    Delay::Beyond(requests) => line(text, within, "delay", &requests.to_string()),
                    Delay::Never => line(text, within, "nodelay", "true"),
                }
            }
            Self::Window(rate) => {
                line(text, within, "limit", rate);
                line(text, within, "algorithm", "fixed_window");
            }
            Self::Concurrent(count) => line(text, within, "concurrent", &count.to_string()),
            Self::Bandwidth { rate, after: None } => line(text, within, "bandwidth", rate),
            Self::Bandwidth { rate, after: Some(after) } => {
                line(text, within, "bandwidth", &format!("{{rate: {rate}, after: {after}}}"));
            }
        }
    }
}

fn line(text: &mut String, within: &str, field: &str, value: &str) {
    let _ = writeln!(text, "{within}{field}: {value}");
}

/// A readable name: letters, digits, `.`, `_` and `-` stay, and what lies between becomes one `-`.
pub(crate) fn name(wanted: &str) -> String {
    let mut name = String::new();
    for character in wanted.chars() {
        match character {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') => name.push(c),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
        if name.len() == LONGEST_NAME {
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
