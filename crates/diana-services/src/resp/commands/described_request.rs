//! A request as `DIANA.CHECK` describes it.
//!
//! A name is an attribute as the rule file writes it: `ip`, `method`, `path`, `host`, `domain`, `header(x)`, `cookie(x)`,
//! `query(x)`, `descriptor(x)`. Any other name is an attribute of that name, such as `account`.
//!
//! # What always holds (tests/it/resp_rules.rs)
//! A request has the attributes that it has for the gateway, so that no spelling evades a rule: the path in all its
//! [forms](diana_http::decoded_path), the method in upper case, the host without its port, and the parameters and cookies
//! of a path with a query and of `header(cookie)`. A request that the gateway answers with 400 because of its path is
//! denied.

use super::{Command, MAX_ECHO, echo, integer, is};
use diana::rules::attributes::DescriptorEntry;
use diana::rules::http_settings::SpellingPolicy;
use diana::rules::{Attribute, Attributes};
use diana_http::{HttpAttributes, malformed_path, normal_method};
use http::header::{COOKIE, HOST, HeaderValue};
use http::request::Parts;
use http::{Request, Uri};
use std::borrow::Cow;
use std::fmt::Write;
use std::net::IpAddr;

/// The name of an attribute, as the rule file writes it; that of a header in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'a> {
    Ip,
    Method,
    Path,
    Host,
    Domain,
    Header(Cow<'a, str>),
    Cookie(&'a str),
    Query(&'a str),
    Descriptor(&'a str),
    Named(&'a str),
}

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Self {
        let inner = |function: &str| text.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')');
        match text {
            "ip" => Self::Ip,
            "method" => Self::Method,
            "path" | "resource" => Self::Path,
            "host" => Self::Host,
            "domain" => Self::Domain,
            _ => inner("header")
                .map(|name| Self::Header(lower_case(name)))
                .or_else(|| inner("cookie").map(Self::Cookie))
                .or_else(|| inner("query").map(Self::Query))
                .or_else(|| inner("descriptor").map(Self::Descriptor))
                .unwrap_or(Self::Named(text)),
        }
    }

    fn is(&self, attribute: &Attribute) -> bool {
        match (self, attribute) {
            (Self::Ip, Attribute::Ip)
            | (Self::Method, Attribute::Method)
            | (Self::Path, Attribute::Path)
            | (Self::Host, Attribute::Host)
            | (Self::Domain, Attribute::Domain) => true,
            (Self::Header(own), Attribute::Header(name)) => **own == **name,
            (Self::Cookie(own), Attribute::Cookie(name))
            | (Self::Query(own), Attribute::Query(name))
            | (Self::Descriptor(own), Attribute::Descriptor(name))
            | (Self::Named(own), Attribute::Named(name)) => *own == &**name,
            _ => false,
        }
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

/// Why a command describes no request that the rules can decide about.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) enum InvalidRequest {
    /// The command is invalid; the text of the error.
    Command(String),
    /// The path is one that services read differently.
    Path,
}

/// An attribute: its name, the same as the client wrote it, and its value.
type Described<'a> = (Name<'a>, &'a str, &'a str);

/// A request as a client describes it.
#[derive(Debug)]
pub(super) struct DescribedRequest<'a> {
    /// Sorted by name.
    attributes: Vec<Described<'a>>,
    descriptor: Vec<DescriptorEntry>,
    ip: Option<IpAddr>,
    pub(super) hits: u64,
    /// The path in its decoded form, if it is one of HTTP.
    path: Option<Cow<'a, str>>,
    other_paths: Vec<String>,
    /// What the attributes say about the head of the request, if it is needed to find other attributes in it.
    head: Option<Box<Parts>>,
}

impl<'a> DescribedRequest<'a> {
    pub(super) fn parse(command: Command<'a>) -> Result<Self, InvalidRequest> {
        let invalid = |text: &str| InvalidRequest::Command(format!("ERR {text}"));
        if command.len().is_multiple_of(2) {
            return Err(invalid("syntax error: expected pairs of name and value"));
        }
        let mut request = Self {
            attributes: Vec::with_capacity(command.len() / 2),
            descriptor: Vec::new(),
            ip: None,
            hits: 1,
            path: None,
            other_paths: Vec::new(),
            head: None,
        };
        for index in (1..command.len()).step_by(2) {
            let (name, value) = (command.arg(index), command.arg(index + 1));
            if index + 2 == command.len() && is(name, "COST") {
                let cost = integer(value).and_then(|cost| u64::try_from(cost).ok());
                request.hits = cost.ok_or_else(|| invalid("COST is not an integer of at least 0"))?;
                continue;
            }
            let text = |bytes| std::str::from_utf8(bytes).map_err(|_| named(name, "is not UTF-8"));
            request.add(text(name)?, text(value)?)?;
        }
        // Sorted, so that as many as a command may have are compared in little time.
        request.attributes.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut pairs = request.attributes.windows(2);
        if let Some([_, (_, text, _)]) = pairs.find(|pair| matches!(pair, [one, other] if one.0 == other.0)) {
            return Err(named(text.as_bytes(), "is given twice"));
        }
        request.read_head()?;
        Ok(request)
    }

    fn add(&mut self, text: &'a str, value: &'a str) -> Result<(), InvalidRequest> {
        let name = Name::parse(text);
        match name {
            Name::Ip => {
                let ip = value.parse::<IpAddr>();
                let ip = ip.map_err(|_| InvalidRequest::Command("ERR ip is not an address".to_owned()))?;
                // An IPv4 address has one form.
                self.ip = Some(ip.to_canonical());
            }
            Name::Descriptor(key) => {
                self.descriptor.push(DescriptorEntry { key: key.to_owned(), value: value.to_owned() });
            }
            _ => {}
        }
        self.attributes.push((name, text, value));
        Ok(())
    }

    /// Returns the value of an attribute as the client wrote it.
    fn find(&self, is_asked: impl Fn(&Name<'_>) -> bool) -> Option<&'a str> {
        self.attributes.iter().find(|(name, ..)| is_asked(name)).map(|(_, _, value)| *value)
    }

    /// Reads path, host and cookies as the gateway does.
    fn read_head(&mut self) -> Result<(), InvalidRequest> {
        let (mut head, ()) = Request::new(()).into_parts();
        let mut is_needed = false;
        if let Some(path) = self.find(|name| *name == Name::Path) {
            match target(path)? {
                // A name of another kind is compared as it is.
                None => self.path = Some(Cow::Borrowed(path.split('?').next().unwrap_or(path))),
                Some(uri) => {
                    is_needed = uri.query().is_some() || uri.authority().is_some();
                    head.uri = uri;
                    let http = HttpAttributes::of_head(&head, None);
                    self.path = http.get(&Attribute::Path).map(|path| Cow::Owned(path.into_owned()));
                    self.other_paths = http.other_paths().to_vec();
                }
            }
        }
        let host = self.find(|name| *name == Name::Host);
        let host = host.or_else(|| self.find(|name| matches!(name, Name::Header(name) if name == "host")));
        let cookies = self.find(|name| matches!(name, Name::Header(name) if name == "cookie"));
        for (name, value) in [(HOST, host), (COOKIE, cookies)] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_bytes(value.as_bytes()).ok()) {
                head.headers.insert(name, value);
                is_needed = true;
            }
        }
        self.head = is_needed.then(|| Box::new(head));
        Ok(())
    }

    /// Returns an attribute that the head contains.
    fn in_head(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let head = self.head.as_ref()?;
        HttpAttributes::of_head(head, None).get(attribute).map(|value| Cow::Owned(value.into_owned()))
    }
}

fn named(name: &[u8], problem: &str) -> InvalidRequest {
    InvalidRequest::Command(format!("ERR attribute '{}' {problem}", echo(name, MAX_ECHO)))
}

/// Returns a path as the target of a request, maybe with a query, or with a scheme and a host; `None` if it is not one of
/// HTTP.
fn target(path: &str) -> Result<Option<Uri>, InvalidRequest> {
    let has_scheme = path
        .split_once("://")
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"));
    if !(path.starts_with('/') || has_scheme) {
        return Ok(None);
    }
    let uri = Uri::try_from(&*escaped(path)).map_err(|_| InvalidRequest::Path)?;
    match malformed_path(uri.path(), SpellingPolicy::Allow) {
        Some(_) => Err(InvalidRequest::Path),
        None => Ok(Some(uri)),
    }
}

/// Escapes what a URI can't contain. Programs often know a path only after it was decoded.
fn escaped(path: &str) -> Cow<'_, str> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'`');
    if path.bytes().all(is_valid) {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len() + 16);
    for byte in path.bytes() {
        if is_valid(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    Cow::Owned(text)
}

impl Attributes for DescribedRequest<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let described = || self.find(|name| name.is(attribute)).map(Cow::Borrowed);
        match attribute {
            Attribute::Ip => self.ip.map(|ip| Cow::Owned(ip.to_string())),
            Attribute::Method => self.find(|name| *name == Name::Method).map(|method| normal_method(method).into()),
            Attribute::Path => self.path.as_deref().map(Cow::Borrowed),
            Attribute::Host => self.in_head(attribute).or_else(described),
            Attribute::Cookie(_) | Attribute::Query(_) => described().or_else(|| self.in_head(attribute)),
            _ => described(),
        }
    }

    fn other_paths(&self) -> &[String] {
        &self.other_paths
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        &self.descriptor
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn passes_names(&self) -> bool {
        true
    }

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}
