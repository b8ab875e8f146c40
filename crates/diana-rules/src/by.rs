//! Whom a limit counts: `by: account`, `by: [account, ip]`, `by: ip/24`, `by: header(x-api-key)`.

use crate::attributes::{Attribute, Attributes};
use crate::document::node::{Node, Value};
use crate::fields::nearest;
use crate::problem::Problem;
use crate::scalar;
use std::fmt;
use std::net::IpAddr;

/// Whom a limit counts: everyone together, or each combination of what its parts say.
///
/// ```
/// use diana_rules::{Attribute, Attributes, By, Document};
/// use std::borrow::Cow;
///
/// struct Request;
///
/// impl Attributes for Request {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         match attribute {
///             Attribute::Ip => Some("203.0.113.77".into()),
///             Attribute::Header(name) if &**name == "x-plan" => Some("free".into()),
///             _ => None,
///         }
///     }
/// }
///
/// let by = |text: &str| By::read(&Document::new("by.yaml", text).parse().unwrap(), &mut Vec::new()).unwrap();
/// let mut key = Vec::new();
/// assert!(by("[header(X-Plan), ip/24]").key(&Request, &mut key).is_some());
/// assert_eq!(key, b"\x04free\x0b203.0.113.0");
/// assert!(by("account").key(&Request, &mut key).is_none(), "it has no account");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    parts: Vec<Part>,
}

/// One part of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// What a request says.
    Of(Attribute),
    /// The first bits of the client's address.
    Prefix { v4: u8, v6: u8 },
    /// The request itself: each has a count of its own.
    Request,
}

/// Words that stand alone.
const WORDS: [&str; 8] = ["global", "account", "device", "resource", "ip", "host", "method", "request"];
/// Words that take a name in brackets.
const WITH_NAME: [&str; 4] = ["header", "cookie", "query", "jwt"];
/// The shares of an address that count where none are given: all of IPv4, and the part of IPv6 that one customer has.
const V4: u8 = 32;
const V6: u8 = 64;

impl By {
    /// Everyone together.
    pub const fn everyone() -> Self {
        Self { parts: Vec::new() }
    }

    /// Reads `by`: a word, or a list of them. What is wrong is told in `problems`.
    pub fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
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
            let Some(text) = scalar::text(node, "`by`", problems) else { continue };
            match part(text.trim()) {
                Ok(None) if is_alone => {}
                Ok(None) => {
                    let problem =
                        Problem::new(node.span, "`global` is everyone together, so nothing can stand beside it");
                    problems.push(problem.expected("leave it out"));
                }
                Ok(Some(part)) if parts.contains(&part) => {
                    problems.push(Problem::new(node.span, format!("`{text}` is there twice")));
                }
                Ok(Some(part)) => parts.push(part),
                Err((what, expected)) => problems.push(Problem::new(node.span, what).expected(expected)),
            }
        }
        (problems.len() == before).then_some(Self { parts })
    }

    /// Writes the key of a request into `key`, in place of what is there. `None` if the request lacks an attribute.
    ///
    /// Each part is written with its length, so that no two combinations give the same key.
    pub fn key(&self, request: &(impl Attributes + ?Sized), key: &mut Vec<u8>) -> Option<()> {
        key.clear();
        for part in &self.parts {
            match part {
                Part::Of(Attribute::Ip) => push(key, &share(&request.get(&Attribute::Ip)?, V4, V6)),
                Part::Of(attribute) => push(key, &request.get(attribute)?),
                Part::Prefix { v4, v6 } => push(key, &share(&request.get(&Attribute::Ip)?, *v4, *v6)),
                // Nobody shares it with anybody; the store is not asked to keep it.
                Part::Request => {}
            }
        }
        Some(())
    }

    /// Whether everyone has one count together.
    pub fn is_everyone(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether each request has a count of its own.
    pub fn is_each_request(&self) -> bool {
        self.parts.contains(&Part::Request)
    }

    /// What must be known about a request.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.parts.iter().filter_map(|part| match part {
            Part::Of(attribute) => Some(attribute),
            Part::Prefix { .. } => Some(&Attribute::Ip),
            Part::Request => None,
        })
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return f.write_str("global");
        }
        for (index, part) in self.parts.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            match part {
                Part::Of(attribute) => write!(f, "{comma}{attribute}")?,
                Part::Prefix { v4: V4, v6 } => write!(f, "{comma}ip/{v6}")?,
                Part::Prefix { v4, .. } => write!(f, "{comma}ip/{v4}")?,
                Part::Request => write!(f, "{comma}request")?,
            }
        }
        Ok(())
    }
}

/// Adds one part with its length in front: seven bits a byte, the least first.
fn push(key: &mut Vec<u8>, part: &str) {
    let mut length = part.len();
    while length > 0x7f {
        key.push(0x80 | u8::try_from(length & 0x7f).unwrap_or(0));
        length >>= 7;
    }
    key.push(u8::try_from(length).unwrap_or(0));
    key.extend_from_slice(part.as_bytes());
}

/// The first bits of an address, as an address; what is none stays as it is.
fn share(address: &str, v4: u8, v6: u8) -> String {
    match address.parse() {
        Ok(IpAddr::V4(address)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(v4.min(32))).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(address.to_bits() & mask).to_string()
        }
        // The same client, whichever way it came.
        Ok(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(v4_address) => share(&v4_address.to_string(), v4, v6),
            None => {
                let mask = u128::MAX.checked_shl(128 - u32::from(v6.min(128))).unwrap_or(0);
                std::net::Ipv6Addr::from_bits(address.to_bits() & mask).to_string()
            }
        },
        Err(_) => address.to_owned(),
    }
}

/// One part; nothing for everyone. Else what is wrong, and what would do.
fn part(text: &str) -> Result<Option<Part>, (String, String)> {
    if let Some((word, name)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        return with_name(word.trim(), name.trim()).map(Some);
    }
    if let Some(bits) = text.strip_prefix("ip/") {
        let wrong =
            || (format!("`{text}` is no share of an address"), "ip/8 to ip/32, or ip/33 to ip/128 of IPv6".to_owned());
        // Up to 32 it is about IPv4, and beyond about IPv6; the other one keeps its usual share.
        return match bits.parse::<u8>().map_err(|_| wrong())? {
            v4 @ 1..=32 => Ok(Some(Part::Prefix { v4, v6: V6 })),
            v6 @ 33..=128 => Ok(Some(Part::Prefix { v4: V4, v6 })),
            _ => Err(wrong()),
        };
    }
    Ok(Some(match text {
        "global" => return Ok(None),
        "request" => Part::Request,
        "ip" => Part::Of(Attribute::Ip),
        "host" => Part::Of(Attribute::Host),
        "method" => Part::Of(Attribute::Method),
        "resource" => Part::Of(Attribute::Path),
        "account" | "device" => Part::Of(Attribute::Named(text.into())),
        _ => {
            let known = WORDS.iter().chain(&WITH_NAME).copied().collect::<Vec<_>>();
            let expected = match nearest(text, &known) {
                Some(meant) if WITH_NAME.contains(&meant) => format!("did you mean `{meant}(NAME)`?"),
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "global, account, device, resource, ip, ip/24, host, method, request, header(x), cookie(x), query(x), jwt(x)"
                    .to_owned(),
            };
            return Err((format!("`{text}` is nothing that requests are told apart by"), expected));
        }
    }))
}

fn with_name(word: &str, name: &str) -> Result<Part, (String, String)> {
    if name.is_empty() {
        return Err((format!("`{word}()` has no name"), format!("`{word}(NAME)`")));
    }
    Ok(Part::Of(match word {
        "header" => Attribute::Header(name.to_ascii_lowercase().into()),
        "cookie" => Attribute::Cookie(name.into()),
        "query" => Attribute::Query(name.into()),
        "jwt" => Attribute::Jwt(name.into()),
        _ => {
            let expected = nearest(word, &WITH_NAME).map(|meant| format!("did you mean `{meant}({name})`?"));
            let expected = expected.unwrap_or_else(|| "header(x), cookie(x), query(x) or jwt(x)".to_owned());
            return Err((format!("`{word}` takes no name"), expected));
        }
    }))
}

#[cfg(test)]
mod tests;
