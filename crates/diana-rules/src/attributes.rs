//! What a front end knows about one request.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// What a front end knows about one request, asked for one by one: a gateway about an HTTP request, a function about its
/// arguments. All of them are the same to the rules.
///
/// ```
/// use diana_rules::{Attribute, Attributes};
/// use std::borrow::Cow;
///
/// struct Call<'a> {
///     account: &'a str,
/// }
///
/// impl Attributes for Call<'_> {
///     fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
///         (*attribute == Attribute::Named("account".into())).then_some(Cow::Borrowed(self.account))
///     }
/// }
///
/// let call = Call { account: "alice" };
/// assert_eq!(call.get(&Attribute::Named("account".into())).as_deref(), Some("alice"));
/// assert_eq!(call.get(&Attribute::Ip), None);
/// ```
pub trait Attributes {
    /// The attribute's value for this request, if it has one.
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>>;

    /// Returns the other forms of the path: how a service may read it that decodes less of it, or cuts less from it, than
    /// [`Attribute::Path`] does. Empty for almost every request.
    ///
    /// A rule matches if it matches any form, and its `allow` exempts a request only if it does so for every form, so that no
    /// spelling of a path evades a limit. The first is the path with its escaped separators kept; routes use that one.
    fn other_paths(&self) -> &[String] {
        &[]
    }

    /// Something that a call tells of itself, by name, and that the rule which it names does not ask for: most likely one of the
    /// two is misspelled. Requests tell nothing of themselves.
    fn told_in_vain(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        let _ = is_asked;
        None
    }

    /// Why this attribute has no value although the request carries a credential for it: the token is there twice, or can't be
    /// verified. `None` if nothing was sent, or if [`get`](Self::get) has a value.
    ///
    /// Such a request is not anonymous: a service that is more lenient than this may well know who it is from. So rules that
    /// skip requests without an account count these together.
    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        let _ = attribute;
        None
    }

    /// The client's address. A front end that has it as an address says so here, which saves reading it from a text.
    fn ip(&self) -> Option<IpAddr> {
        self.get(&Attribute::Ip)?.parse().ok()
    }
}

/// The value of what services read in different ways: most of all, what a request has more than once, with different values. Services
/// take the first one, the last one or all of them. If any of these were the key, a client could add values and get a new key each
/// time, so all such requests share this one.
///
/// Where a rule names values (`match`, `deny`), this counts as each of them. It is on no `allow` list, and an
/// [expression](crate::Expression) that asks for it fails. A [`Matcher`](crate::Matcher) of your own should match it.
pub const SEVERAL: &str = "(several)";

/// Why an expression can't go by this attribute: nobody can tell its value.
pub(crate) fn doubt_about<'a>(request: &'a (impl Attributes + ?Sized), attribute: &Attribute) -> Option<Doubt<'a>> {
    let is_several = request.get(attribute).is_some_and(|value| value == SEVERAL);
    if is_several { Some(Doubt::Several) } else { request.doubt(attribute) }
}

/// Why an attribute has no value although the request carries a credential for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt<'a> {
    /// It is there more than once, with different values.
    Several,
    /// The token can't be verified: it is malformed, too long, or not signed by the configured key.
    Unverified,
    /// The token is signed by the configured key, but expired, not valid yet, or of another issuer or for another audience.
    /// This is what it claims.
    Rejected(Cow<'a, str>),
    /// The expression that gives the value failed.
    Failed,
}

/// Something that may be known about a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// The client's address.
    Ip,
    /// The method, such as `GET`.
    Method,
    /// The path, without the query: decoded, and without `.` and `..`, since rules compare it as it is. Where services may
    /// read the path in several ways, this is the decoded form; [`Attributes::other_paths`] has the others.
    Path,
    /// The host that was asked for.
    Host,
    /// A header, by its name in lower case.
    Header(Box<str>),
    /// A cookie, by its name.
    Cookie(Box<str>),
    /// A parameter of the query, by its name.
    Query(Box<str>),
    /// A claim of the request's token, by its name.
    Jwt(Box<str>),
    /// A parameter of the path, by the name that a rule's `match` gives it: `id` of `/users/{id}`.
    Param(Box<str>),
    /// What a front end or the file's `identity` knows by this name: `account`, `device`, an argument.
    Named(Box<str>),
}

impl fmt::Display for Attribute {
    /// As a rule writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("resource"),
            Self::Host => f.write_str("host"),
            Self::Header(name) => write!(f, "header({name})"),
            Self::Cookie(name) => write!(f, "cookie({name})"),
            Self::Query(name) => write!(f, "query({name})"),
            Self::Jwt(name) => write!(f, "jwt({name})"),
            Self::Param(name) => write!(f, "param({name})"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
