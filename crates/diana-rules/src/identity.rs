//! The sources of the standard keys: the header, cookie or claim that is the account, the device, the tenant.

mod jwt;
pub(crate) mod jwt_settings;
mod source;
mod verification_key;

use crate::attributes::{Attribute, Attributes, DescriptorEntry, Doubt, doubt_about};
use crate::expression::Expression;
use diana_document::Problem;
use diana_document::map_reader::empty;
use diana_document::scalar;
use diana_document::{Node, Value};
use jwt::{Token, Tokens};
use source::Source;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Defines names such as `account`, and how tokens are verified.
///
/// ```
/// use diana_rules::identity::Identity;
/// use diana_rules::{Attribute, Attributes, Document};
/// use std::borrow::Cow;
///
/// struct Request;
///
/// impl Attributes for Request {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         (*attribute == Attribute::Header("x-account-id".into())).then_some("a1".into())
///     }
/// }
///
/// let document = Document::new("identity.yaml", "account: header(X-Account-Id)\ndevice: cookie(device)\n");
/// let identity = Identity::read(&document.parse()?, &mut Vec::new()).unwrap();
/// assert_eq!(identity.of(&Request).get(&Attribute::Named("account".into())).as_deref(), Some("a1"));
/// assert_eq!(identity.of(&Request).get(&Attribute::Named("device".into())), None);
/// # Ok::<(), diana_rules::Problems>(())
/// ```
///
/// | source | value |
/// |---|---|
/// | `header(x)`, `cookie(x)`, `query(x)`, `ip`, `host`, `method` | the attribute of the request |
/// | `jwt(claim)` | a claim of the request's token, if the token is valid; `a.b` is `b` inside of `a` |
/// | `cel("...")` | the result of an [expression](crate::expression::Expression) over `request`; it can't use other names |
///
/// An empty value counts as absent. `jwt` configures how tokens are verified: `secret`, `public_key` (PEM) with its
/// `algorithm`, or `verify: false` if a proxy in front of Diana verifies them; and `from`, `issuer`, `audience` and
/// `leeway`. An invalid token has no claims, but its request is not treated as one without a token: see
/// [`Attributes::doubt`].
#[derive(Clone, Debug, Default)]
pub struct Identity {
    sources: Vec<(Box<str>, Source)>,
    tokens: Option<Tokens>,
    /// Names whose definition is invalid. That was reported, so rules that use them cause no further problem.
    invalid: Vec<Box<str>>,
}

/// Words that have another meaning in a rule.
const TAKEN: [&str; 12] =
    ["global", "resource", "ip", "host", "method", "path", "request", "header", "cookie", "query", "param", "cel"];

impl Identity {
    /// Parses `identity`. Reports errors in `problems`.
    pub fn read(node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let read = Self::read_partially(node, problems);
        (problems.len() == before).then_some(read)
    }

    /// Parses the valid part of `identity`. Reports errors in `problems`; names with an invalid definition are still
    /// defined.
    pub(crate) fn read_partially(node: &Node, problems: &mut Vec<Problem>) -> Self {
        let entries = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => return Self::default(),
            other => {
                let what = format!("invalid `identity`: expected a map, found {}", other.kind());
                problems.push(
                    Problem::new(node.span, what)
                        .expected("expected names and their sources, such as `account: header(x-account-id)`"),
                );
                return Self::default();
            }
        };
        let has_tokens = entries.iter().any(|entry| entry.key == "jwt" && entry.node.value != Value::Null);
        let mut read = Self::default();
        for entry in entries {
            let (name, known) = (entry.key.as_str(), read.sources.len());
            if entry.node.value == Value::Null {
                // A forgotten value must not leave the rules without an account.
                empty(entry, problems);
                read.invalid.push(name.into());
                continue;
            }
            if name == "jwt" {
                read.tokens = Tokens::read(&entry.node, problems);
                if read.tokens.is_none() {
                    read.invalid.push(name.into());
                }
                continue;
            }
            if let Some(problem) = invalid_name(name) {
                problems.push(Problem::new(entry.span, problem.0).expected(problem.1));
                continue;
            }
            let what = format!("`{name}`");
            match scalar::text(&entry.node, &what, problems).map(Source::read) {
                Some(Ok(source)) if source.needs_tokens() && !has_tokens => {
                    let problem = Problem::new(entry.node.span, "claims need verified tokens");
                    problems.push(problem.expected("add `jwt: {secret: '${JWT_SECRET}'}` to `identity`"));
                }
                Some(Ok(source)) => read.sources.push((name.into(), source)),
                Some(Err(invalid)) => problems.push(invalid.at(entry.node.span)),
                None => {}
            }
            if read.sources.len() == known {
                read.invalid.push(name.into());
            }
        }
        read
    }

    /// The defined names, in the order of the file.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let invalid = self.invalid.iter().filter(|name| &***name != "jwt");
        self.sources.iter().map(|(name, _)| name).chain(invalid).map(|name| &**name)
    }

    /// Returns the attribute of the request that a name is, if it is one.
    pub(crate) fn source_of(&self, name: &str) -> Option<&Attribute> {
        let (_, source) = self.sources.iter().find(|(known, _)| &**known == name)?;
        match source {
            Source::Of(attribute) => Some(attribute),
            Source::Expression(_) => None,
        }
    }

    /// Returns `true` if token verification is configured, which `jwt(claim)` requires.
    pub fn knows_tokens(&self) -> bool {
        self.tokens.is_some() || self.invalid.iter().any(|name| &**name == "jwt")
    }

    /// Returns `true` if it defines nothing.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.tokens.is_none()
    }

    /// Wraps a request, to resolve these names. A token is verified once, and only if a claim is read.
    pub fn of<'a, A: Attributes + ?Sized>(&'a self, request: &'a A) -> Identified<'a, A> {
        Identified { identity: self, request, token: OnceLock::new() }
    }

    /// Returns the attribute of a name, unless it is an expression.
    pub(crate) fn attribute(&self, name: &str) -> Option<&Attribute> {
        match self.source(name)? {
            Source::Of(attribute) => Some(attribute),
            Source::Expression(_) => None,
        }
    }

    /// The attributes of a request that the names and the token are read from.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let sources = self.sources.iter().flat_map(|(_, source)| source.attributes());
        sources.chain(self.tokens.iter().map(Tokens::source))
    }

    /// The names of this attribute.
    pub fn names_of(&self, attribute: &Attribute) -> impl Iterator<Item = &str> {
        let is_it = move |source: &Source| matches!(source, Source::Of(known) if known == attribute);
        self.sources.iter().filter(move |(_, source)| is_it(source)).map(|(name, _)| &**name)
    }

    fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|(known, _)| **known == *name).map(|(_, source)| source)
    }
}

/// A request with the names of an [`Identity`], in addition to its own attributes.
pub struct Identified<'a, A: ?Sized> {
    identity: &'a Identity,
    request: &'a A,
    /// The token, after a claim was read.
    token: OnceLock<Token>,
}

impl<A: Attributes + ?Sized> Identified<'_, A> {
    fn token(&self, tokens: &Tokens) -> &Token {
        self.token.get_or_init(|| tokens.token(self.request))
    }

    fn claim(&self, tokens: &Tokens, name: &str) -> Option<Cow<'_, str>> {
        match self.token(tokens) {
            Token::Valid(claims) => jwt::claim(claims, name),
            Token::Absent | Token::Several | Token::Unverified | Token::Rejected(_) => None,
        }
    }

    /// Returns why the claim has no value, although the request has a token.
    fn doubt_about_claim(&self, name: &str) -> Option<Doubt<'_>> {
        match self.token(self.identity.tokens.as_ref()?) {
            Token::Absent | Token::Valid(_) => None,
            Token::Several => Some(Doubt::Several),
            Token::Unverified => Some(Doubt::Unverified),
            Token::Rejected(claims) => Some(jwt::claim(claims, name).map_or(Doubt::Unverified, Doubt::Rejected)),
        }
    }

    /// Returns why an expression of `identity` has no value, although the request has the attributes that it reads.
    fn doubt_about(&self, expression: &Expression) -> Option<Doubt<'_>> {
        let failed = match expression.text_of(self) {
            Ok(text) if !text.is_empty() => return None,
            Ok(_) => None,
            Err(_) => Some(Doubt::Failed),
        };
        let doubts = expression.attributes().filter_map(|attribute| doubt_about(self, attribute));
        // An expression may combine several claims, so a single one does not identify the client.
        let without_claim = |doubt| if matches!(doubt, Doubt::Rejected(_)) { Doubt::Unverified } else { doubt };
        doubts.map(without_claim).next().or(failed)
    }
}

impl<A: Attributes + ?Sized> Attributes for Identified<'_, A> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Named(name) => match self.identity.source(name) {
                // A source is never a name, so this recurses only once.
                Some(Source::Of(source)) => self.get(source).filter(|value| !value.is_empty()),
                Some(Source::Expression(expression)) => {
                    expression.text_of(self).ok().filter(|value| !value.is_empty()).map(Cow::Owned)
                }
                None => self.request.get(attribute),
            },
            Attribute::Jwt(name) => match &self.identity.tokens {
                Some(tokens) => self.claim(tokens, name),
                None => self.request.get(attribute),
            },
            _ => self.request.get(attribute),
        }
    }

    fn other_paths(&self) -> &[String] {
        self.request.other_paths()
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        match attribute {
            Attribute::Named(name) => match self.identity.source(name) {
                Some(Source::Of(source)) => self.doubt(source),
                Some(Source::Expression(expression)) => self.doubt_about(expression),
                None => self.request.doubt(attribute),
            },
            Attribute::Jwt(name) if self.identity.tokens.is_some() => self.doubt_about_claim(name),
            _ => self.request.doubt(attribute),
        }
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        self.request.descriptor()
    }

    fn ip(&self) -> Option<IpAddr> {
        self.request.ip()
    }
}

impl<A: ?Sized> fmt::Debug for Identified<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identified").field("identity", self.identity).finish_non_exhaustive()
    }
}

/// Returns why a name can't be defined, and a suggested fix.
pub(crate) fn invalid_name(name: &str) -> Option<(String, &'static str)> {
    if TAKEN.contains(&name) {
        return Some((format!("reserved name `{name}`"), "use another name"));
    }
    let has_valid_start = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_valid =
        has_valid_start && name.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'));
    (!is_valid)
        .then(|| (format!("invalid name `{name}`"), "expected letters, digits, `_` and `-`, starting with a letter"))
}

#[cfg(test)]
mod tests;
