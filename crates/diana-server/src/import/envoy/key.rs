//! What a key of a descriptor is to Diana.
//!
//! Envoy's routes decide what a key holds, and they are not in the file. A few names are the same everywhere; for any other
//! the rule file gets a name of its own under `identity`, with a place to write where it comes from.

use super::super::expression::{Expression, HOST, METHOD, PATH};
use super::super::rule::{Rule, is_plain_host, is_plain_path, is_usual_method};

/// What a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The client's address.
    Address,
    /// An attribute that rules know: its word in `by`, and in expressions.
    Known { by: &'static str, expression: &'static str },
    /// A name under `identity`.
    Named { name: String, source: String, hint: &'static str },
}

/// The longest name under `identity`, and the longest header that is guessed, in characters: a key of YAML has an end.
const LONGEST: usize = 64;

/// Words that mean something else in rules or expressions.
const TAKEN: [&str; 36] = [
    "as",
    "break",
    "cel",
    "const",
    "continue",
    "cookie",
    "else",
    "false",
    "for",
    "function",
    "global",
    "header",
    "host",
    "if",
    "import",
    "in",
    "ip",
    "jwt",
    "let",
    "loop",
    "method",
    "namespace",
    "null",
    "package",
    "param",
    "query",
    "request",
    "resource",
    "return",
    "size",
    "true",
    "type",
    "var",
    "void",
    "while",
    "matches",
];

impl Key {
    pub(super) fn of(key: &str) -> Self {
        match key {
            "remote_address" | "masked_remote_address" => Self::Address,
            "path" | ":path" => Self::Known { by: "resource", expression: PATH },
            "method" | ":method" => Self::Known { by: "method", expression: METHOD },
            "host" | ":authority" | "authority" => Self::Known { by: "host", expression: HOST },
            _ => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let word = |c: char| if is_word(c) { c } else { '_' };
                let mut name = key.chars().take(LONGEST).map(word).collect::<String>();
                if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
                    name.insert(0, '_');
                }
                if TAKEN.contains(&name.as_str()) {
                    name.push_str("_key");
                }
                let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
                let letter = |c: char| if is_letter(c) { c.to_ascii_lowercase() } else { '-' };
                let header = key.chars().take(LONGEST).map(letter).collect::<String>();
                let header = header.trim_matches('-').trim_start_matches("x-");
                let source = format!("header(x-{})", if header.is_empty() { "key" } else { header });
                Self::Named { name, source, hint: hint(key) }
            }
        }
    }

    /// Its word in `by`.
    pub(super) fn by(&self) -> String {
        match self {
            // Envoy counts each address for itself, of IPv6 as well.
            Self::Address => "ip/128".to_owned(),
            Self::Known { by, .. } => (*by).to_owned(),
            Self::Named { name, .. } => name.clone(),
        }
    }

    /// Asks for a value in a field of the rule, if there is one for it that is still free; else what is left to ask.
    pub(super) fn field(&self, value: &str, rule: &mut Rule) -> Expression {
        let field = match self {
            Self::Known { by: "method", .. } if is_usual_method(value) => &mut rule.methods,
            Self::Known { by: "host", .. } if is_plain_host(value) => &mut rule.hosts,
            // Envoy's paths have the query in them, which no path of a rule has.
            Self::Known { by: "resource", .. } if is_plain_path(value) => &mut rule.paths,
            _ => return Expression::equals(self.expression().unwrap_or_default(), value),
        };
        if !field.is_empty() {
            return Expression::equals(self.expression().unwrap_or_default(), value);
        }
        field.push(value.to_owned());
        Expression::True
    }

    /// Its word in expressions; none for addresses, which rules have fields for.
    pub(super) fn expression(&self) -> Option<&str> {
        match self {
            Self::Address => None,
            Self::Known { expression, .. } => Some(expression),
            Self::Named { name, .. } => Some(name),
        }
    }
}

/// What to do about a key that Envoy's routes fill.
fn hint(key: &str) -> &'static str {
    match key {
        "generic_key" => {
            "Envoy's routes set it; have the gateway before Diana set a header, or replace it by `match.path` of those routes"
        }
        "header_match" | "query_parameter_match" => {
            "Envoy's routes set it by a match; write that match into `match.when`"
        }
        "destination_cluster" | "source_cluster" => {
            "Envoy sets it to a cluster; write the hosts or paths of that cluster into `match`"
        }
        _ => {
            "Envoy's routes say what it holds; write here where it comes from: header(x), cookie(x), query(x), jwt(x) ..."
        }
    }
}

/// Whether a text fits a value with `*` in it.
pub(super) fn pattern(what: &str, value: &str) -> Expression {
    match value.split('*').collect::<Vec<_>>().as_slice() {
        ["", ""] => Expression::True,
        [beginning, ""] => Expression::starts_with(what, beginning),
        ["", end] => Expression::ends_with(what, end),
        parts => {
            let parts = parts.iter().map(|part| regex_syntax::escape(part)).collect::<Vec<_>>();
            Expression::matches(what, &format!("^{}$", parts.join(".*")))
        }
    }
}

/// Whether `text` fits the pattern `value`.
pub(super) fn fits(value: &str, text: &str) -> bool {
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
    use super::*;

    #[test]
    fn keys_get_names_that_expressions_have() {
        assert_eq!(Key::of("remote_address").by(), "ip/128");
        assert_eq!(Key::of(":path").by(), "resource");
        let named = |key: &str| match Key::of(key) {
            Key::Named { name, source, .. } => (name, source),
            other => panic!("{other:?}"),
        };
        assert_eq!(named("user"), ("user".to_owned(), "header(x-user)".to_owned()));
        assert_eq!(named("x-tenant-id"), ("x_tenant_id".to_owned(), "header(x-tenant-id)".to_owned()));
        assert_eq!(named("in"), ("in_key".to_owned(), "header(x-in)".to_owned()));
        assert_eq!(named("7"), ("_7".to_owned(), "header(x-7)".to_owned()));
        assert_eq!(named("ü"), ("_".to_owned(), "header(x-key)".to_owned()));
    }

    #[test]
    fn patterns_fit() {
        assert_eq!(pattern("k", "foo*").to_string(), r#"k.startsWith("foo")"#);
        assert_eq!(pattern("k", "*foo").to_string(), r#"k.endsWith("foo")"#);
        assert_eq!(pattern("k", "a.*b*c").to_string(), r#"k.matches("^a\\..*b.*c$")"#);
        assert!(fits("foo*", "foobar") && fits("a*b*c", "a1b2c") && fits("*", "") && fits("x", "x"));
        assert!(!fits("foo*", "fo") && !fits("a*b*c", "acb") && !fits("ab*b", "ab") && !fits("x", "xy"));
    }
}
