//! A request as `DIANA.CHECK` describes it.
//!
//! A name is an attribute as the rule file writes it: `ip`, `method`, `path`, `host`, `scheme`, `domain`, `header(x)`,
//! `cookie(x)`, `query(x)`, `descriptor(x)`. Any other name is an attribute of that name, such as `account`.
//!
//! # What always holds (tests/it/resp_rules.rs)
//! A request has the attributes that it has for the gateway, so that no spelling evades a rule: the path in all its
//! [forms](diana_http::decoded_path), the method in upper case, the host without its port, and the parameters and cookies
//! of a path with a query and of `header(cookie)`. A request that the gateway would reject is denied; one that is longer
//! than `gateway.bounds.header` is an error.

use super::{Command, MAX_ECHO, echo, integer, is};
use crate::resp::session::ReplyForm;
use diana::rules::attributes::DescriptorEntry;
use diana::rules::{Attribute, Attributes};
use diana_http::head::{DescribedHead, HeadDescription, RejectedRequest};
use diana_http::{HttpAttributes, normal_method, normal_scheme};
use diana_net::ServerSettings;
use std::borrow::Cow;
use std::net::IpAddr;

/// The name of an attribute, as the rule file writes it; that of a header in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'a> {
    Ip,
    Method,
    Path,
    Host,
    Scheme,
    Domain,
    Header(Cow<'a, str>),
    Cookie(&'a str),
    Query(&'a str),
    Descriptor(&'a str),
    Named(&'a str),
}

const SCHEME: &str = "scheme";

impl<'a> Name<'a> {
    fn parse(text: &'a str) -> Self {
        let inner = |function: &str| text.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')');
        match text {
            "ip" => Self::Ip,
            "method" => Self::Method,
            "path" | "resource" => Self::Path,
            "host" => Self::Host,
            SCHEME => Self::Scheme,
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
            | (Self::Scheme, Attribute::Scheme)
            | (Self::Domain, Attribute::Domain) => true,
            // A file may have it as a name of its own.
            (Self::Scheme, Attribute::Named(name)) => &**name == SCHEME,
            (Self::Header(field), Attribute::Header(name)) => **field == **name,
            (Self::Cookie(field), Attribute::Cookie(name))
            | (Self::Query(field), Attribute::Query(name))
            | (Self::Descriptor(field), Attribute::Descriptor(name))
            | (Self::Named(field), Attribute::Named(name)) => *field == &**name,
            _ => false,
        }
    }

    /// Returns `true` if the gateway would read the attribute from the head of a request.
    fn is_in_head(&self) -> bool {
        match self {
            Self::Method | Self::Path | Self::Host | Self::Header(_) | Self::Cookie(_) | Self::Query(_) => true,
            Self::Ip | Self::Scheme | Self::Domain | Self::Descriptor(_) | Self::Named(_) => false,
        }
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    match text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(text.to_ascii_lowercase()),
        false => Cow::Borrowed(text),
    }
}

/// The reason why a command describes no request that the rules can decide about.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::resp) enum InvalidRequest {
    /// The command is invalid; the text of the error.
    Command(String),
    /// The gateway would reject the request.
    Rejected(ReplyForm),
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
    /// The form of the reply.
    pub(super) reply: ReplyForm,
    /// The head of the request, as the attributes describe it.
    head: Option<DescribedHead>,
    /// Whether that has the path of the request, which is not the name of something else.
    has_http_path: bool,
}

/// A described request as rules see it.
#[derive(Debug)]
pub(super) struct AskedRequest<'a> {
    described: &'a DescribedRequest<'a>,
    http: Option<HttpAttributes<'a>>,
}

impl<'a> DescribedRequest<'a> {
    pub(super) fn parse(command: Command<'a>, settings: &ServerSettings) -> Result<Self, InvalidRequest> {
        let invalid = |text: &str| InvalidRequest::Command(format!("ERR {text}"));
        if command.len().is_multiple_of(2) {
            return Err(invalid("syntax error: expected pairs of name and value"));
        }
        let mut request = Self {
            attributes: Vec::with_capacity(command.len() / 2),
            descriptor: Vec::new(),
            ip: None,
            hits: 1,
            reply: ReplyForm::default(),
            head: None,
            has_http_path: false,
        };
        for index in (1..command.len()).step_by(2) {
            let (name, value) = (command.arg(index), command.arg(index + 1));
            if index + 2 == command.len() && is(name, "COST") {
                let cost = integer(value).and_then(|cost| u64::try_from(cost).ok());
                request.hits = cost.ok_or_else(|| invalid("COST is not an integer of at least 0"))?;
                continue;
            }
            // Before the cost, or at the end.
            if index + 4 >= command.len() && is(name, "REPLY") {
                if !is(value, "USED") {
                    return Err(invalid("REPLY is not `used`"));
                }
                request.reply = ReplyForm::WithUsed;
                continue;
            }
            let text = |bytes| std::str::from_utf8(bytes).map_err(|_| named(name, "is not UTF-8"));
            request.add(text(name)?, text(value)?)?;
        }
        request.check_length(settings.bounds.header)?;
        // Sorted, so that as many as a command may have are compared in little time.
        request.attributes.sort_by(|(one, ..), (other, ..)| one.cmp(other));
        let mut pairs = request.attributes.windows(2);
        if let Some([_, (_, text, _)]) = pairs.find(|pair| matches!(pair, [one, other] if one.0 == other.0)) {
            return Err(named(text.as_bytes(), "is given twice"));
        }
        let reply = request.reply;
        request.read_head(settings).map_err(|_| InvalidRequest::Rejected(reply))?;
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

    /// Rejects a request whose head would be too long for the gateway.
    fn check_length(&self, max: usize) -> Result<(), InvalidRequest> {
        let in_head = self.attributes.iter().filter(|(name, ..)| name.is_in_head());
        let length = in_head.map(|(_, text, value)| text.len() + value.len()).sum::<usize>();
        if length <= max {
            return Ok(());
        }
        let text = format!("ERR the request has {length} bytes, more than the {max} of `gateway.bounds.header`");
        Err(InvalidRequest::Command(text))
    }

    /// Returns the value of an attribute as the client wrote it.
    fn find(&self, is_asked: impl Fn(&Name<'_>) -> bool) -> Option<&'a str> {
        self.attributes.iter().find(|(name, ..)| is_asked(name)).map(|(_, _, value)| *value)
    }

    /// Reads path, method, host and cookies as the gateway does.
    fn read_head(&mut self, settings: &ServerSettings) -> Result<(), RejectedRequest> {
        let is_header = |name: &Name<'_>, header: &str| matches!(name, Name::Header(name) if name == header);
        let host = self.find(|name| *name == Name::Host).or_else(|| self.find(|name| is_header(name, "host")));
        let cookies = self.find(|name| is_header(name, "cookie"));
        let method = self.find(|name| *name == Name::Method);
        let description = HeadDescription { path: "/", method, host, cookies };
        if let Some(path) = self.path() {
            self.head = DescribedHead::read(&HeadDescription { path, ..description }, &settings.heads())?;
            self.has_http_path = self.head.is_some();
        }
        if self.head.is_none() && (host.is_some() || cookies.is_some()) {
            self.head = DescribedHead::read(&HeadDescription { method: None, ..description }, &settings.heads())?;
        }
        Ok(())
    }

    fn path(&self) -> Option<&'a str> {
        self.find(|name| *name == Name::Path)
    }

    /// Returns the request for rules.
    pub(super) fn asked(&self) -> AskedRequest<'_> {
        AskedRequest { described: self, http: self.head.as_ref().map(DescribedHead::attributes) }
    }
}

impl AskedRequest<'_> {
    /// Returns an attribute that the head contains.
    fn in_head(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        self.http.as_ref()?.get(attribute)
    }
}

fn named(name: &[u8], problem: &str) -> InvalidRequest {
    InvalidRequest::Command(format!("ERR attribute '{}' {problem}", echo(name, MAX_ECHO)))
}

impl Attributes for AskedRequest<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let find = || self.described.find(|name| name.is(attribute)).map(Cow::Borrowed);
        match attribute {
            Attribute::Ip => self.described.ip.map(|ip| Cow::Owned(ip.to_string())),
            Attribute::Method => {
                self.described.find(|name| *name == Name::Method).map(|method| normal_method(method).into())
            }
            Attribute::Scheme => find().map(|scheme| normal_scheme(&scheme).into()),
            Attribute::Path if self.described.has_http_path => self.in_head(attribute),
            // The name of something else is compared as it is.
            Attribute::Path => self.described.path().and_then(|path| path.split('?').next()).map(Cow::Borrowed),
            Attribute::Host => self.in_head(attribute).or_else(find),
            Attribute::Cookie(_) | Attribute::Query(_) => find().or_else(|| self.in_head(attribute)),
            _ => find(),
        }
    }

    fn other_paths(&self) -> &[String] {
        self.http.as_ref().map_or(&[], HttpAttributes::other_paths)
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        &self.described.descriptor
    }

    fn hits(&self) -> u64 {
        self.described.hits
    }

    fn passes_names(&self) -> bool {
        true
    }

    fn ip(&self) -> Option<IpAddr> {
        self.described.ip
    }
}
