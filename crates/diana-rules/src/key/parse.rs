//! Parses `by`.

use super::bytes::Share;
use super::{KeySpec, Part};
use crate::attributes::Attribute;
use crate::document::{Node, Span, Value};
use crate::identity::Identity;
use crate::map_reader::nearest;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::scalar;
use crate::scope::{Scope, Wanted};

/// Keywords without an argument.
pub(crate) const WORDS: [&str; 6] = ["global", "resource", "ip", "host", "method", "request"];
/// Keywords that take a name in parentheses.
pub(crate) const WITH_NAME: [&str; 6] = ["header", "cookie", "query", "jwt", "param", "cel"];

/// The problem, and a suggested fix.
type Wrong = (String, String);

impl KeySpec {
    /// Parses `by`: a word, or a list of them. Reports errors in `problems`.
    pub fn read(node: &Node, registry: &Registry, problems: &mut Vec<Problem>) -> Option<Self> {
        let identity = Identity::default();
        Self::read_with(
            node,
            &Scope { registry, identity: &identity, gateway: false, paths: None, call: None },
            problems,
        )
    }

    pub(crate) fn read_with(node: &Node, vocabulary: &Scope<'_>, problems: &mut Vec<Problem>) -> Option<Self> {
        let nodes = match &node.value {
            Value::List(items) => items.iter().collect::<Vec<_>>(),
            _ => vec![node],
        };
        if nodes.is_empty() {
            problems.push(Problem::new(node.span, "`by` names nobody").expected("`global` is everyone together"));
            return None;
        }
        let before = problems.len();
        let is_alone = nodes.len() == 1;
        let mut parts = Vec::new();
        for node in nodes {
            let Some(text) = scalar::text(node, "`by`", problems).map(str::trim) else { continue };
            match part(text, node.span, vocabulary, problems) {
                Ok(None) if text == "global" && !is_alone => {
                    let what = "`global` is everyone together, so nothing can stand beside it";
                    problems.push(Problem::new(node.span, what).expected("leave it out"));
                }
                Ok(None) => {}
                Ok(Some(part)) if parts.contains(&part) => {
                    problems
                        .push(Problem::new(node.span, format!("`{text}` is there twice")).expected("leave one out"));
                }
                Ok(Some(part)) => {
                    // The attributes of an expression were checked when it was compiled.
                    if let Part::Of(attribute) = &part {
                        vocabulary.check(attribute, node.span, problems);
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
fn part(text: &str, span: Span, vocabulary: &Scope<'_>, problems: &mut Vec<Problem>) -> Result<Option<Part>, Wrong> {
    if let Some((word, name)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        let (word, name) = (word.trim(), name.trim());
        if word == "cel" {
            let expression = unquoted(name).unwrap_or(name);
            return Ok(vocabulary.compile(expression, span, "`cel`", Wanted::Text, problems).map(Part::Expression));
        }
        return attribute(word, name).map(|attribute| Some(Part::Of(attribute)));
    }
    // YAML ends an unquoted text at ` #`, and in a list at a comma.
    if text.starts_with("cel(") {
        return Err((format!("`{text}` ends too early"), "put quotes around it all, as in 'cel(\"...\")'".to_owned()));
    }
    if let Some(bits) = text.strip_prefix("ip/") {
        return share(text, bits).map(|share| Some(Part::Address(share)));
    }
    // Registered keys come first, so that a new built-in keyword never shadows a user's key.
    if let Some((name, of)) = vocabulary.registry.find_key(text) {
        return Ok(Some(Part::Registered(name, of)));
    }
    // Calls pass these names themselves; `identity` extracts them from requests.
    if vocabulary.call.is_some() && vocabulary.names().contains(&text) {
        return Ok(Some(Part::Of(Attribute::Named(text.into()))));
    }
    // The name is resolved now, so that requests need no lookup.
    if let Some(source) = vocabulary.identity.attribute(text) {
        // An address is counted by its prefix, whatever its name.
        if *source == Attribute::Ip {
            return Ok(Some(Part::Address(Share::USUAL)));
        }
        return Ok(Some(Part::Named(text.into(), source.clone())));
    }
    if vocabulary.names().contains(&text) {
        return Ok(Some(Part::Of(Attribute::Named(text.into()))));
    }
    Ok(Some(match text {
        "global" => return Ok(None),
        "request" => Part::Request,
        "ip" => Part::Address(Share::USUAL),
        "host" => Part::Of(Attribute::Host),
        "method" => Part::Of(Attribute::Method),
        "resource" => Part::Of(Attribute::Path),
        _ => return Err(unknown(text, vocabulary)),
    }))
}

/// Parses `header(x)` and the like.
pub(crate) fn attribute(word: &str, name: &str) -> Result<Attribute, Wrong> {
    if !WITH_NAME.contains(&word) {
        let expected = nearest(word, &WITH_NAME).map(|meant| format!("did you mean `{meant}({name})`?"));
        let expected =
            expected.unwrap_or_else(|| "header(x), cookie(x), query(x), jwt(x), param(x) or cel(\"...\")".to_owned());
        return Err((format!("`{word}` takes no name"), expected));
    }
    if name.is_empty() {
        return Err((format!("`{word}()` has no name"), format!("`{word}(NAME)`")));
    }
    Ok(match word {
        "header" => Attribute::Header(name.to_ascii_lowercase().into()),
        "cookie" => Attribute::Cookie(name.into()),
        "query" => Attribute::Query(name.into()),
        "jwt" => Attribute::Jwt(name.into()),
        _ => Attribute::Param(name.into()),
    })
}

/// Removes the quotes around a text.
fn unquoted(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// Parses the prefix lengths. A single number up to 32 is for IPv4, a larger one for IPv6; the other keeps its default.
/// Of two numbers, the first is for IPv4 and the second for IPv6.
fn share(text: &str, bits: &str) -> Result<Share, Wrong> {
    let number = |bits: &str| bits.parse::<u8>().ok().filter(|_| bits.bytes().all(|byte| byte.is_ascii_digit()));
    let share = match bits.split_once('/') {
        None => number(bits).map(|bits| match bits {
            v4 @ ..=32 => Share { v4, ..Share::USUAL },
            v6 => Share { v6, ..Share::USUAL },
        }),
        Some((v4, v6)) => number(v4).zip(number(v6)).map(|(v4, v6)| Share { v4, v6 }),
    };
    share.filter(|share| (1..=32).contains(&share.v4) && (1..=128).contains(&share.v6)).ok_or_else(|| {
        let expected = "ip/1 to ip/32, ip/33 to ip/128 of IPv6, or both as in ip/24/48";
        (format!("`{text}` is no share of an address"), expected.to_owned())
    })
}

fn unknown(text: &str, vocabulary: &Scope<'_>) -> Wrong {
    let mut known: Vec<&str> = vocabulary.names();
    known.extend(WORDS.iter().chain(&WITH_NAME).map(|word| -> &str { word }));
    known.extend(vocabulary.registry.keys().map(|word| -> &str { word }));
    let expected = match nearest(text, &known) {
        Some(meant) if WITH_NAME.contains(&meant) => format!("did you mean `{meant}(NAME)`?"),
        Some(meant) => format!("did you mean `{meant}`?"),
        None => "global, account, device, resource, ip, ip/24, host, method, request, header(x), cookie(x), query(x), jwt(x), param(x), cel(\"...\") or a name of `identity`"
            .to_owned(),
    };
    (format!("`{text}` is nothing that requests are told apart by"), expected)
}
