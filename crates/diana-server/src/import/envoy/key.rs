//! The meaning of a descriptor's key in Diana.
//!
//! Envoy's routes define the content of a key, and they are not in the file. A few names are conventional; for any
//! other the rule file gets a name under `identity`, with a placeholder for its source.

use super::super::expression::{Expression, HOST, METHOD, PATH};
use super::super::rule::{Rule, is_plain_host, is_plain_path, is_usual_method};

/// The meaning of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The client's address.
    Address,
    /// An attribute that rules know: its name in `by`, and in expressions.
    Known { by: &'static str, expression: &'static str },
    /// A name under `identity`.
    Named { name: String, source: String, hint: &'static str },
}

/// The longest name under `identity`, and the longest guessed header, in characters: the length of a YAML key is
/// limited.
const MAX_NAME: usize = 64;

/// Words with another meaning in rules or expressions.
const RESERVED: [&str; 36] = [
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
                let mut name = key.chars().take(MAX_NAME).map(word).collect::<String>();
                if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
                    name.insert(0, '_');
                }
                if RESERVED.contains(&name.as_str()) {
                    name.push_str("_key");
                }
                let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
                let letter = |c: char| if is_letter(c) { c.to_ascii_lowercase() } else { '-' };
                let header = key.chars().take(MAX_NAME).map(letter).collect::<String>();
                let header = header.trim_matches('-').trim_start_matches("x-");
                let source = format!("header(x-{})", if header.is_empty() { "key" } else { header });
                Self::Named { name, source, hint: hint(key) }
            }
        }
    }

    /// Returns its name in `by`.
    pub(super) fn by(&self) -> String {
        match self {
            // Envoy counts each address separately, also for IPv6.
            Self::Address => "ip/128".to_owned(),
            Self::Known { by, .. } => (*by).to_owned(),
            Self::Named { name, .. } => name.clone(),
        }
    }

    /// Tests for a value in a field of the rule, if there is a free one for it; else returns the remaining condition.
    pub(super) fn field(&self, value: &str, rule: &mut Rule) -> Expression {
        let field = match self {
            Self::Known { by: "method", .. } if is_usual_method(value) => &mut rule.methods,
            Self::Known { by: "host", .. } if is_plain_host(value) => &mut rule.hosts,
            // Envoy's paths include the query, which paths of rules do not.
            Self::Known { by: "resource", .. } if is_plain_path(value) => &mut rule.paths,
            _ => return Expression::equals(self.expression().unwrap_or_default(), value),
        };
        if !field.is_empty() {
            return Expression::equals(self.expression().unwrap_or_default(), value);
        }
        field.push(value.to_owned());
        Expression::True
    }

    /// Returns its name in expressions; `None` for addresses, which have their own fields.
    pub(super) fn expression(&self) -> Option<&str> {
        match self {
            Self::Address => None,
            Self::Known { expression, .. } => Some(expression),
            Self::Named { name, .. } => Some(name),
        }
    }
}

/// Returns the hint for a key that Envoy's routes fill.
fn hint(key: &str) -> &'static str {
    match key {
        "generic_key" => {
            "Envoy's routes set it; set a header in the gateway before Diana, or write the paths of those routes into `match.path`"
        }
        "header_match" | "query_parameter_match" => {
            "Envoy's routes set it by a match; write that match into `match.when`"
        }
        "destination_cluster" | "source_cluster" => {
            "Envoy sets it to a cluster; write the hosts or paths of that cluster into `match`"
        }
        _ => "Envoy's routes define its value; write its source: header(x), cookie(x), query(x), jwt(x) ...",
    }
}

/// Returns the condition that a text matches a value with `*` in it.
pub(super) fn pattern(subject: &str, value: &str) -> Expression {
    match value.split('*').collect::<Vec<_>>().as_slice() {
        ["", ""] => Expression::True,
        [beginning, ""] => Expression::starts_with(subject, beginning),
        ["", end] => Expression::ends_with(subject, end),
        parts => {
            let parts = parts.iter().map(|part| regex_syntax::escape(part)).collect::<Vec<_>>();
            Expression::matches(subject, &format!("^{}$", parts.join(".*")))
        }
    }
}

/// Returns whether `text` matches the pattern `value`.
pub(super) fn matches_pattern(value: &str, text: &str) -> bool {
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
    fn keys_get_valid_identifiers() {
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
    fn patterns_match() {
        assert_eq!(pattern("k", "foo*").to_string(), r#"k.startsWith("foo")"#);
        assert_eq!(pattern("k", "*foo").to_string(), r#"k.endsWith("foo")"#);
        assert_eq!(pattern("k", "a.*b*c").to_string(), r#"k.matches("^a\\..*b.*c$")"#);
        assert!(
            matches_pattern("foo*", "foobar")
                && matches_pattern("a*b*c", "a1b2c")
                && matches_pattern("*", "")
                && matches_pattern("x", "x")
        );
        assert!(
            !matches_pattern("foo*", "fo")
                && !matches_pattern("a*b*c", "acb")
                && !matches_pattern("ab*b", "ab")
                && !matches_pattern("x", "xy")
        );
    }
}
