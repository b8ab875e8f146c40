//! Parses `match`.

use super::descriptor::DescriptorMatch;
use super::glob::Glob;
use super::host::HostPattern;
use super::path_syntax_hint;
use super::{HeaderMatch, Match, OtherMatch};
use crate::attributes::Attribute;
use crate::identity::invalid_name;
use crate::names_in_scope::{NamesInScope, Wanted};
use crate::networks::{Networks, parse_network};
use diana_document::Problem;
use diana_document::map_reader::{MapReader, nearest};
use diana_document::scalar;
use diana_document::{Node, Value};

/// The built-in fields of `match`.
pub(crate) const FIELDS: [&str; 9] = ["path", "method", "host", "header", "ip", "domain", "descriptor", "when", "call"];
/// The fields that only apply to requests.
const REQUEST_FIELDS: [&str; 6] = ["path", "method", "host", "header", "domain", "descriptor"];
/// Names that have another meaning in the attribute of a function.
const OPTIONS: [&str; 3] = ["in", "on_limit", "crate"];
/// The fields for the destination of a request.
pub(crate) const ROUTE_FIELDS: [&str; 2] = ["host", "path"];
/// The conditions of a permission rule.
const PERMISSION_FIELDS: [&str; 4] = ["path", "method", "host", "ip"];
/// The standard methods.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

impl Match {
    /// The fields of `match`.
    pub(crate) fn fields(scope: &NamesInScope<'_>) -> Vec<&'static str> {
        FIELDS.into_iter().chain(scope.registry.matchers()).collect()
    }

    /// Parses `match`. Reports errors in `problems`, and omits invalid conditions.
    pub(crate) fn read(node: &Node, scope: &NamesInScope<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "`match`", Self::fields(scope), problems)?;
        let (mut matches, before) = (Self::default(), problems.len());
        if let Some(node) = fields.take("call") {
            matches.call = Some(call(node, problems));
            for name in REQUEST_FIELDS {
                if let Some(node) = fields.take(name) {
                    let problem = Problem::new(node.span, format!("`{name}` is not supported for calls"));
                    problems.push(
                        problem.expected(format!("remove it, or remove `call` to match requests with this `{name}`")),
                    );
                }
            }
        }
        if let Some(node) = fields.take("path") {
            matches.paths = each(node, "`path`", problems, path_syntax_hint::path);
        }
        // The parameters of an invalid path are unknown.
        let is_known = problems.len() == before;
        if let Some(node) = fields.take("method") {
            matches.methods = each(node, "`method`", problems, method);
        }
        if let Some(node) = fields.take("host") {
            matches.hosts = each(node, "`host`", problems, HostPattern::read);
        }
        if let Some(node) = fields.take("header") {
            matches.headers = headers(node, problems);
        }
        if let Some(node) = fields.take("ip") {
            matches.networks = networks(node, problems);
        }
        // A registered matcher wins, so that these newer fields break no program.
        let mut newer =
            |name: &str| fields.take(name).filter(|_| !scope.registry.matchers().any(|known| known == name));
        if let Some(node) = newer("domain") {
            matches.domains = each(node, "`domain`", problems, domain);
        }
        if let Some(node) = newer("descriptor") {
            matches.descriptor = DescriptorMatch::read(node, problems);
        }
        let rule_scope = scope.of_rule(is_known.then_some(&matches));
        let when = fields
            .take("when")
            .and_then(|node| rule_scope.expression(node, "`when`", Wanted::Truth, problems).map(|when| (node, when)))
            .and_then(|(node, when)| {
                match when.constant() {
                    Some(false) => {
                        let problem = Problem::new(node.span, "`when` is always false, so this rule never applies");
                        problems.push(problem.expected("remove the rule"));
                        None
                    }
                    // A condition that is always true need not be checked.
                    Some(true) => None,
                    None => Some(when),
                }
            });
        matches.when = when;
        for (name, build) in scope.registry.each_matcher() {
            let Some(node) = fields.take(name) else { continue };
            if let Some(matcher) = build(node, problems) {
                matches.others.push(OtherMatch { name, written: written(node), matcher });
            }
        }
        fields.finish(problems);
        Some(matches)
    }

    /// Parses the conditions of a permission rule: path, method, host and ip.
    pub(crate) fn read_permission(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "permission rule", PERMISSION_FIELDS, problems)?;
        let mut matches = Self::default();
        if let Some(node) = fields.take("path") {
            matches.paths = each(node, "`path`", problems, path_syntax_hint::path);
        }
        if let Some(node) = fields.take("method") {
            matches.methods = each(node, "`method`", problems, method);
        }
        if let Some(node) = fields.take("host") {
            matches.hosts = each(node, "`host`", problems, HostPattern::read);
        }
        if let Some(node) = fields.take("ip") {
            matches.networks = networks(node, problems);
        }
        fields.finish(problems);
        Some(matches)
    }

    /// Parses a `match` that has only host and path.
    pub fn parse_route(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let mut fields = MapReader::of(node, "route `match`", ROUTE_FIELDS, problems)?;
        let mut matches = Self::default();
        if let Some(node) = fields.take("host") {
            matches.hosts = each(node, "`host`", problems, HostPattern::read);
        }
        if let Some(node) = fields.take("path") {
            matches.paths = each(node, "`path`", problems, path_syntax_hint::path);
        }
        fields.finish(problems);
        Some(matches)
    }
}

/// Parses the arguments that calls pass: none (`true`), or values by these names.
fn call(node: &Node, problems: &mut Vec<Problem>) -> Vec<Box<str>> {
    match node.value {
        Value::Bool(true) => return Vec::new(),
        Value::Bool(false) => {
            let problem = Problem::new(node.span, "`call: false` is not supported");
            problems.push(problem.expected("remove it, or use `call: true`"));
            return Vec::new();
        }
        _ => {}
    }
    if matches!(&node.value, Value::List(items) if items.is_empty()) {
        let problem = Problem::new(node.span, "`call` is empty");
        problems.push(problem.expected("use `call: true` for calls without arguments"));
        return Vec::new();
    }
    each(node, "`call`", problems, |text| match invalid_name(text) {
        // Options of the attribute.
        _ if OPTIONS.contains(&text) => Err((format!("reserved name `{text}`"), "use another name")),
        None => Ok(text.into()),
        Some((invalid, expected)) => Err((invalid, expected)),
    })
}

/// Parses a text or a list of texts, each with `read`.
pub(crate) fn each<T, E: Into<String>>(
    node: &Node,
    what: &str,
    problems: &mut Vec<Problem>,
    read: impl Fn(&str) -> Result<T, (String, E)>,
) -> Vec<T> {
    let nodes = match &node.value {
        Value::List(items) => items.iter().collect::<Vec<_>>(),
        _ => vec![node],
    };
    if nodes.is_empty() {
        problems.push(
            Problem::new(node.span, format!("{what} is empty, so this rule never applies"))
                .expected("remove it to match all requests"),
        );
    }
    let mut values = Vec::with_capacity(nodes.len());
    for node in nodes {
        let Some(text) = scalar::text(node, what, problems) else { continue };
        match read(text) {
            Ok(value) => values.push(value),
            Err((invalid, expected)) => problems.push(Problem::new(node.span, invalid).expected(expected)),
        }
    }
    values
}

fn networks(node: &Node, problems: &mut Vec<Problem>) -> Networks {
    let networks = each(node, "`ip`", problems, |text| {
        let invalid = || {
            (
                format!("invalid address or network `{text}`"),
                "expected an address or a network, such as 10.0.0.7, 10.0.0.0/8 or 2001:db8::/32",
            )
        };
        parse_network(text).ok_or_else(invalid)
    });
    networks.into_iter().collect()
}

fn method(text: &str) -> Result<Box<str>, (String, String)> {
    if METHODS.contains(&text) {
        return Ok(text.into());
    }
    let upper = text.to_ascii_uppercase();
    if METHODS.contains(&&*upper) {
        return Err((
            format!("method `{text}` never matches: methods are case-sensitive"),
            format!("did you mean `{upper}`?"),
        ));
    }
    let is_token =
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    match nearest(&upper, &METHODS.map(str::to_ascii_lowercase).each_ref().map(String::as_str)) {
        Some(meant) => {
            Err((format!("invalid method `{text}`"), format!("did you mean `{}`?", meant.to_ascii_uppercase())))
        }
        // There are non-standard methods: PROPFIND, PURGE, custom ones.
        None if is_token => Ok(text.into()),
        None => Err((format!("invalid method `{text}`"), "expected a method such as GET or POST".to_owned())),
    }
}

fn domain(text: &str) -> Result<Box<str>, (String, &'static str)> {
    match text {
        // Envoy does not ask without a domain.
        "" => Err(("`domain` is empty, so this rule never applies".to_owned(), "remove it to match every domain")),
        _ => Ok(text.into()),
    }
}

fn headers(node: &Node, problems: &mut Vec<Problem>) -> Vec<HeaderMatch> {
    let Value::Map(entries) = &node.value else {
        let what = format!("invalid `header`: expected a map, found {}", node.value.kind());
        problems.push(
            Problem::new(node.span, what).expected("expected values by name, such as {x-plan: free, x-kind: [a, b*]}"),
        );
        return Vec::new();
    };
    let mut headers = Vec::new();
    for entry in entries {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if entry.key.is_empty() || !entry.key.bytes().all(is_token) {
            let problem = Problem::new(entry.span, format!("invalid header name `{}`", entry.key));
            problems.push(problem.expected("expected a name such as x-plan"));
            continue;
        }
        let what = format!("header `{}`", entry.key);
        let values = each(&entry.node, &what, problems, |text| Ok::<_, (String, String)>(Glob::new(text)));
        headers.push(HeaderMatch { header: Attribute::Header(entry.key.to_ascii_lowercase().into()), values });
    }
    headers
}

/// Returns a value approximately as it is written.
fn written(node: &Node) -> String {
    match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(text) | Value::Text(text) => text.clone(),
        Value::List(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entries = entries.iter().map(|entry| format!("{}: {}", entry.key, written(&entry.node)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}
