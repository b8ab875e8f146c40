//! Parses `by`.

use super::bytes::PrefixLengths;
use super::{KeySpec, Part};
use crate::attributes::Attribute;
use crate::identity::Identity;
use crate::names_in_scope::{NamesInScope, Wanted};
use crate::registry::Registry;
use diana_document::Problem;
use diana_document::foreign_words;
use diana_document::map_reader::nearest;
use diana_document::scalar;
use diana_document::{Node, Span, Value};

/// Keywords without an argument.
pub(crate) const WORDS: [&str; 7] = ["global", "resource", "ip", "host", "method", "domain", "request"];
/// Keywords that take a name in parentheses.
pub(crate) const WITH_NAME: [&str; 7] = ["header", "cookie", "query", "jwt", "param", "descriptor", "cel"];

/// The problem, and a suggested fix.
type Invalid = (String, String);

impl KeySpec {
    /// Parses `by`: a word, or a list of them. Reports errors in `problems`.
    pub fn read(node: &Node, registry: &Registry, problems: &mut Vec<Problem>) -> Option<Self> {
        let identity = Identity::default();
        Self::read_with(
            node,
            &NamesInScope { registry, identity: &identity, gateway: false, of_match: None, call: None },
            problems,
        )
    }

    pub(crate) fn read_with(node: &Node, scope: &NamesInScope<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let nodes = match &node.value {
            Value::List(items) => items.iter().collect::<Vec<_>>(),
            _ => vec![node],
        };
        if nodes.is_empty() {
            problems
                .push(Problem::new(node.span, "`by` is empty").expected("use `global` to count all requests together"));
            return None;
        }
        let before = problems.len();
        let is_alone = nodes.len() == 1;
        let mut parts = Vec::new();
        for node in nodes {
            let Some(text) = scalar::text(node, "`by`", problems).map(str::trim) else { continue };
            match parse_part(text, node.span, scope, problems) {
                Ok(None) if text == "global" && !is_alone => {
                    let what = "`global` cannot be combined with other keys";
                    problems.push(Problem::new(node.span, what).expected("remove it"));
                }
                Ok(None) => {}
                Ok(Some(part)) if parts.contains(&part) => {
                    problems.push(
                        Problem::new(node.span, format!("duplicate key `{text}`")).expected("remove one of the two"),
                    );
                }
                Ok(Some(part)) => {
                    // The attributes of an expression were checked when it was compiled.
                    if let Part::Of(attribute) = &part {
                        scope.check(attribute, node.span, problems);
                    }
                    parts.push(part);
                }
                Err((what, expected)) => problems.push(Problem::new(node.span, what).expected(expected)),
            }
        }
        (problems.len() == before).then_some(Self { parts })
    }
}

/// Parses one part. Returns `None` for `global`, and for a part that was already reported as a problem.
fn parse_part(
    text: &str,
    span: Span,
    scope: &NamesInScope<'_>,
    problems: &mut Vec<Problem>,
) -> Result<Option<Part>, Invalid> {
    if let Some((word, name)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let (word, name) = (word.trim(), name.trim());
        if word == "cel" {
            let expression = unquoted(name).unwrap_or(name);
            return Ok(scope.compile(expression, span, "`cel`", Wanted::Text, problems).map(Part::Expression));
        }
        return attribute(word, name).map(|attribute| Some(Part::Of(attribute)));
    }
    // YAML ends an unquoted text at ` #`, and in a list at a comma.
    if text.starts_with("cel(") {
        return Err((
            format!("unterminated `{text}`"),
            "put quotes around the whole value, as in 'cel(\"...\")'".to_owned(),
        ));
    }
    if let Some(bits) = text.strip_prefix("ip/") {
        return prefix_lengths(text, bits).map(|prefix| Some(Part::Address(prefix)));
    }
    // Registered keys come first, so that a new built-in keyword never shadows a user's key.
    if let Some((name, of)) = scope.registry.find_key(text) {
        return Ok(Some(Part::Registered(name, of)));
    }
    // Calls pass these names themselves; `identity` extracts them from requests.
    if scope.call.is_some() && scope.names().contains(&text) {
        return Ok(Some(Part::Of(Attribute::Named(text.into()))));
    }
    // The name is resolved now, so that requests need no lookup.
    if let Some(source) = scope.identity.attribute(text) {
        // An address is counted by its prefix, whatever its name.
        if *source == Attribute::Ip {
            return Ok(Some(Part::Address(PrefixLengths::DEFAULT)));
        }
        return Ok(Some(Part::Named(text.into(), source.clone())));
    }
    if scope.names().contains(&text) {
        return Ok(Some(Part::Of(Attribute::Named(text.into()))));
    }
    Ok(Some(match text {
        "global" => return Ok(None),
        "request" => Part::Request,
        "ip" => Part::Address(PrefixLengths::DEFAULT),
        "host" => Part::Of(Attribute::Host),
        "method" => Part::Of(Attribute::Method),
        "domain" => Part::Of(Attribute::Domain),
        "resource" => Part::Of(Attribute::Path),
        _ => return Err(unknown(text, scope)),
    }))
}

/// Parses `header(x)` and the like.
pub(crate) fn attribute(word: &str, name: &str) -> Result<Attribute, Invalid> {
    if !WITH_NAME.contains(&word) {
        let expected = nearest(word, &WITH_NAME).map(|meant| format!("did you mean `{meant}({name})`?"));
        let expected = expected.unwrap_or_else(|| {
            "expected header(x), cookie(x), query(x), jwt(x), param(x), descriptor(x) or cel(\"...\")".to_owned()
        });
        return Err((format!("unknown key `{word}({name})`"), expected));
    }
    if name.is_empty() {
        return Err((format!("missing name in `{word}()`"), format!("expected `{word}(NAME)`")));
    }
    Ok(match word {
        "header" => Attribute::Header(name.to_ascii_lowercase().into()),
        "cookie" => Attribute::Cookie(name.into()),
        "query" => Attribute::Query(name.into()),
        "jwt" => Attribute::Jwt(name.into()),
        "descriptor" => Attribute::Descriptor(name.into()),
        _ => Attribute::Param(name.into()),
    })
}

/// Removes the quotes around a text.
fn unquoted(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Parses the prefix lengths. A single number up to 32 is for IPv4, a larger one for IPv6; the other keeps its default.
/// Of two numbers, the first is for IPv4 and the second for IPv6.
fn prefix_lengths(text: &str, bits: &str) -> Result<PrefixLengths, Invalid> {
    let number = |bits: &str| bits.parse::<u8>().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()));
    let prefix = match bits.split_once('/') {
        None => number(bits).map(|bits| match bits {
            v4 @ ..=32 => PrefixLengths { v4, ..PrefixLengths::DEFAULT },
            v6 => PrefixLengths { v6, ..PrefixLengths::DEFAULT },
        }),
        Some((v4, v6)) => number(v4).zip(number(v6)).map(|(v4, v6)| PrefixLengths { v4, v6 }),
    };
    prefix.filter(|prefix| (1..=32).contains(&prefix.v4) && (1..=128).contains(&prefix.v6)).ok_or_else(|| {
        let expected = "expected ip/1 to ip/32, ip/33 to ip/128 for IPv6, or both as in ip/24/48";
        (format!("invalid prefix length `{text}`"), expected.to_owned())
    })
}

fn unknown(text: &str, scope: &NamesInScope<'_>) -> Invalid {
    let mut known: Vec<&str> = scope.names();
    known.extend(WORDS.iter().chain(&WITH_NAME).map(|word| -> &str { word }));
    known.extend(scope.registry.keys().map(|word| -> &str { word }));
    let expected = match nearest(text, &known) {
        Some(meant) if WITH_NAME.contains(&meant) => format!("did you mean `{meant}(NAME)`?"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => foreign_words::key(text).unwrap_or_else(|| "expected global, account, device, resource, ip, ip/24, host, method, domain, request, header(x), cookie(x), query(x), jwt(x), param(x), descriptor(x), cel(\"...\") or a name of `identity`"
            .to_owned()),
    };
    (format!("unknown key `{text}`"), expected)
}
