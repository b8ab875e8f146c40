//! Variables that `map` and `geo` define, and the requests for which they have a value that counts.
//!
//! The usual way to exempt some clients is a key that is empty for them, since nginx does not count empty keys:
//!
//! ```nginx
//! geo $limit { default 1; 10.0.0.0/8 0; }
//! map $limit $limit_key { 0 ""; 1 $binary_remote_addr; }
//! ```
//!
//! Here `$limit_key` is not empty for all requests but those of 10.0.0.0/8.

use super::syntax::Directive;
use crate::expression::{Expression, HOST, METHOD, PATH, entry, unsupported_regex};
use crate::rule_file::is_usual_method;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The variables that a configuration defines, by name without `$`.
#[derive(Debug, Default)]
pub(super) struct Variables {
    defined: BTreeMap<String, Defined>,
}

#[derive(Debug)]
pub(super) struct Defined {
    /// The variable that it depends on.
    source: String,
    is_geo: bool,
    default: String,
    /// Values by pattern: networks for `geo`.
    entries: Vec<(String, String)>,
    /// The part that is not supported.
    unsupported: Option<String>,
}

/// A set of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    /// Networks that are excluded.
    pub(super) allow: Vec<String>,
    /// The only networks that are included; empty means all.
    pub(super) ips: Vec<String>,
    /// The only methods that are included; empty means all.
    pub(super) methods: Vec<String>,
    pub(super) when: Expression,
}

impl Default for Condition {
    fn default() -> Self {
        Self { allow: Vec::new(), ips: Vec::new(), methods: Vec::new(), when: Expression::True }
    }
}

/// The maximum depth of variables that depend on each other.
const MAX_DEPTH: usize = 8;

impl Variables {
    /// Adds the variable of a `map` or `geo`.
    pub(super) fn add(&mut self, directive: &Directive) {
        let is_geo = directive.name == "geo";
        let (source, name) = match &*directive.args {
            [name] if is_geo => ("$remote_addr", name.as_str()),
            [source, name] => (source.as_str(), name.as_str()),
            _ => return,
        };
        let mut defined = Defined {
            source: source.to_owned(),
            is_geo,
            default: String::new(),
            entries: Vec::new(),
            unsupported: None,
        };
        for inner in directive.inside() {
            match (inner.name.as_str(), &*inner.args) {
                ("default", [value]) => defined.default.clone_from(value),
                ("volatile" | "proxy_recursive", []) => {}
                ("ranges" | "proxy" | "delete", _) if is_geo => {
                    defined.unsupported = Some(format!("`{}` in `geo` is not supported", inner.name));
                }
                ("hostnames", []) => defined.unsupported = Some("`hostnames` in `map` is not supported".to_owned()),
                (pattern, [value]) => defined.entries.push((pattern.to_owned(), value.clone())),
                _ => {}
            }
        }
        self.defined.insert(name.trim_start_matches('$').to_owned(), defined);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Defined> {
        self.defined.get(name)
    }

    /// Returns the requests for which the variable `name` has a value that `counts`; fails with the reason if it can't
    /// tell.
    pub(super) fn condition(
        &self,
        name: &str,
        counts: &dyn Fn(&str) -> bool,
        depth: usize,
    ) -> Result<Condition, String> {
        let Some(defined) = self.defined.get(name) else { return Err(format!("undefined variable `${name}`")) };
        if depth == MAX_DEPTH {
            return Err(format!("`${name}` depends on too many other variables"));
        }
        if let Some(unsupported) = &defined.unsupported {
            return Err(unsupported.clone());
        }
        let source = defined.source.trim_start_matches('$').trim_matches(['{', '}']);
        match source {
            "remote_addr" | "binary_remote_addr" => defined.by_address(counts),
            _ if defined.is_geo => Err(format!("`geo` uses `${source}`, not the client's address")),
            _ if let Some(depends) = self.defined.get(source) => {
                if depends.values().iter().any(|value| value.contains('$')) {
                    return Err(format!("`map ${source}` uses a value that depends on other parts of the request"));
                }
                let is_counted = |value: &str| defined.value_of(value).is_some_and(counts);
                if defined.entries.iter().any(|(pattern, _)| pattern.starts_with('~')) {
                    return Err(format!(
                        "`map ${source}` has regular expressions for values is_counted another `map` or `geo`"
                    ));
                }
                self.condition(source, &is_counted, depth + 1)
            }
            _ => defined.by_text(source, counts),
        }
    }
}

impl Defined {
    /// Returns all values that are not empty.
    pub(super) fn values(&self) -> BTreeSet<&str> {
        let values = self.entries.iter().map(|(_, value)| value).chain([&self.default]);
        values.map(String::as_str).filter(|value| !value.is_empty()).collect()
    }

    /// Returns the value for a known text; `None` if that text itself depends on other variables.
    fn value_of(&self, text: &str) -> Option<&str> {
        if text.contains('$') {
            return None;
        }
        let entry = self.entries.iter().find(|(pattern, _)| unescaped(pattern).eq_ignore_ascii_case(text));
        Some(entry.map_or(&self.default, |(_, value)| value))
    }

    fn by_address(&self, counts: &dyn Fn(&str) -> bool) -> Result<Condition, String> {
        let mut networks = (BTreeSet::new(), BTreeSet::new());
        for (pattern, value) in &self.entries {
            let network = network(pattern).ok_or_else(|| format!("invalid address or network `{pattern}`"))?;
            if counts(value) {
                networks.0.insert(network)
            } else {
                networks.1.insert(network)
            };
        }
        let (counted, exempt) = networks;
        let formatted = |networks: &BTreeSet<(IpAddr, u8)>| networks.iter().map(format_network).collect::<Vec<_>>();
        let is_within = |network: &(IpAddr, u8), others: &BTreeSet<(IpAddr, u8)>| {
            (0..network.1).any(|length| others.contains(&(masked(network.0, length), length)))
        };
        if counts(&self.default) {
            if let Some(network) = counted.iter().find(|network| is_within(network, &exempt)) {
                return Err(format!("{} is counted, but the network around it is not", format_network(network)));
            }
            return Ok(Condition { allow: formatted(&exempt), ..Condition::default() });
        }
        if counted.is_empty() {
            return Err("no address has a value that is counted".to_owned());
        }
        if let Some(network) = counted.iter().find(|network| is_within(network, &exempt)) {
            return Err(format!("{} is counted, but the network around it is not", format_network(network)));
        }
        let inside = exempt.into_iter().filter(|network| is_within(network, &counted)).collect();
        Ok(Condition { ips: formatted(&counted), allow: formatted(&inside), ..Condition::default() })
    }

    /// Evaluates by a text of the request: first the literal values, then the patterns in their order.
    fn by_text(&self, source: &str, counts: &dyn Fn(&str) -> bool) -> Result<Condition, String> {
        let what = text_of(source).ok_or_else(|| format!("`${source}` is not supported in conditions"))?;
        let is_method = source == "request_method";
        let (patterns, texts): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|(pattern, _)| pattern.starts_with('~'));
        let texts = |wanted: bool| {
            let chosen = texts.iter().filter(|(_, value)| counts(value) == wanted);
            let texts = chosen.map(|(text, _)| unescaped(text));
            // `map` ignores case, and the methods that nginx accepts are upper case.
            let with_case = |text: &str| if is_method { text.to_ascii_uppercase() } else { text.to_owned() };
            texts.map(with_case).collect::<Vec<_>>()
        };
        let (counted, exempt) = (texts(true), texts(false));
        let is_field = is_method && !counted.is_empty() && counted.iter().all(|method| is_usual_method(method));
        if is_field && patterns.is_empty() && !counts(&self.default) {
            return Ok(Condition { methods: counted, ..Condition::default() });
        }
        let mut when = if counts(&self.default) { Expression::True } else { Expression::False };
        let patterns = patterns.iter().map(|(pattern, value)| (pattern.trim_start_matches('~'), counts(value)));
        let patterns = patterns.collect::<Vec<_>>();
        for run in patterns.chunk_by(|a, b| a.1 == b.1).rev() {
            let mut any = Expression::False;
            for (pattern, _) in run {
                let pattern =
                    pattern.strip_prefix('*').map_or_else(|| (*pattern).to_owned(), |rest| format!("(?i){rest}"));
                if let Some(problem) = unsupported_regex(&pattern) {
                    return Err(format!("`{pattern}` is not supported in `matches`: {problem}"));
                }
                any = any.or(Expression::matches(&what, &pattern));
            }
            when = if run.first().is_some_and(|(_, counts)| *counts) { any.or(when) } else { any.not().and(when) };
        }
        if patterns.chunk_by(|a, b| a.1 == b.1).count() > MAX_DEPTH {
            return Err("patterns that are counted and not counted alternate too often".to_owned());
        }
        when = is_one_of(source, &what, &counted).or(is_one_of(source, &what, &exempt).not().and(when));
        if when == Expression::False {
            return Err("no request has a value that is counted".to_owned());
        }
        Ok(Condition { when, ..Condition::default() })
    }
}

/// Tests whether a text is one of several, ignoring case as `map` does.
fn is_one_of(source: &str, what: &str, texts: &[String]) -> Expression {
    let has_letters = texts.iter().any(|text| text.contains(char::is_alphabetic));
    if !has_letters || source == "request_method" {
        return Expression::one_of(what, texts);
    }
    let escaped = texts.iter().map(|text| regex_syntax::escape(text)).collect::<Vec<_>>();
    Expression::matches(what, &format!("(?i)^({})$", escaped.join("|")))
}

/// Returns the name of an nginx variable in expressions.
fn text_of(variable: &str) -> Option<String> {
    Some(match variable {
        "uri" | "document_uri" => PATH.to_owned(),
        "host" | "http_host" => HOST.to_owned(),
        "request_method" => METHOD.to_owned(),
        _ => {
            if let Some(name) = variable.strip_prefix("http_") {
                entry("headers", &name.to_lowercase().replace('_', "-"))
            } else if let Some(name) = variable.strip_prefix("cookie_") {
                entry("cookies", name)
            } else if let Some(name) = variable.strip_prefix("arg_") {
                entry("query", name)
            } else {
                return None;
            }
        }
    })
}

/// A pattern of `map` that begins with a backslash means the rest literally: `\default`, `\~`.
fn unescaped(pattern: &str) -> &str {
    pattern.strip_prefix('\\').unwrap_or(pattern)
}

/// Parses an address or a network, and clears the bits after its prefix length.
pub(super) fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length.parse().ok()?)),
        None => (text, None),
    };
    let address = address.parse::<IpAddr>().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = length.unwrap_or(longest);
    (length <= longest).then(|| (masked(address, length), length))
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(v4.to_bits() & mask).into()
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(v6.to_bits() & mask).into()
        }
    }
}

/// Formats a network as rules do: a single address without its length.
pub(super) fn format_network((address, length): &(IpAddr, u8)) -> String {
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if *length == longest { address.to_string() } else { format!("{address}/{length}") }
}
