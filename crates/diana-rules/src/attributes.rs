//! The attributes of a request, as a front end provides them.

mod synthetic_request;

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
pub use synthetic_request::SyntheticRequest;

/// The attributes of one request, looked up one at a time. A gateway provides them for an HTTP request, a function call
/// for its arguments; the rules treat both alike.
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
    /// Returns the attribute's value for this request, if it has one.
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>>;

    /// Returns the other forms of the path: those that a service may see if it decodes or removes less than
    /// [`Attribute::Path`] does. Empty for almost every request.
    ///
    /// A rule matches if it matches any form, and its `allow` exempts a request only if every form is exempt, so that
    /// no spelling of a path evades a limit. The first form keeps escaped separators; routes use that one.
    fn other_paths(&self) -> &[String] {
        &[]
    }

    /// Returns the name of an argument that a call passes but the rule that it names does not use: most likely one of
    /// the two is misspelled. HTTP requests pass no arguments.
    fn unknown_argument(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        let _ = is_asked;
        None
    }

    /// Returns why this attribute has no value although the request has a credential for it: the token is duplicated,
    /// or can't be verified; or every request has one, as an address, and the front end does not know it. `None` if the
    /// request has no credential, or if [`get`](Self::get) returns a value.
    ///
    /// Such a request is not anonymous: a more lenient service may accept its credential. So rules that skip requests
    /// without an account count these requests under one shared key.
    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        let _ = attribute;
        None
    }

    /// Returns the entries of the request's descriptor, in their order, if it comes from Envoy.
    fn descriptor(&self) -> &[DescriptorEntry] {
        &[]
    }

    /// Returns how many requests this one stands for: the cost of each rule is multiplied by it. One that stands for 0
    /// is not charged; a peek tells whether a limit is exceeded already.
    fn hits(&self) -> u64 {
        1
    }

    /// Returns `true` if the request itself has values for the names that the file's `identity` defines, such as
    /// `account`, as a call or a descriptor has. Then these values win over those that `identity` finds.
    fn passes_names(&self) -> bool {
        false
    }

    /// Returns the client's address. Override it in a front end that has an `IpAddr`, to avoid parsing a string.
    fn ip(&self) -> Option<IpAddr> {
        self.get(&Attribute::Ip)?.parse().ok()
    }
}

/// The value of an attribute that services interpret in different ways, most often because a request repeats it with
/// different values. Services use the first one, the last one or all of them. If any of these were the key, a client
/// could add values to get a new key each time, so all such requests share this key.
///
/// In a rule's `match` and `deny`, this equals every listed value. It is on no `allow` list, and an
/// [expression](crate::expression::Expression) that reads it fails. A custom
/// [`Matcher`](crate::matching::Matcher) should match it.
pub const SEVERAL: &str = "(several)";

/// Returns why an expression can't use this attribute: its value is ambiguous or unverified.
pub(crate) fn doubt_about<'a>(request: &'a (impl Attributes + ?Sized), attribute: &Attribute) -> Option<Doubt<'a>> {
    let is_several = request.get(attribute).is_some_and(|value| value == SEVERAL);
    if is_several { Some(Doubt::Several) } else { request.doubt(attribute) }
}

/// The reason why an attribute has no value although the request has a credential for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt<'a> {
    /// The credential occurs more than once, with different values.
    Several,
    /// The token can't be verified: it is malformed, too long, or not signed by the configured key.
    Unverified,
    /// The token is signed by the configured key, but expired, not valid yet, or for another issuer or audience.
    /// Contains the claim's value.
    Rejected(Cow<'a, str>),
    /// The expression that computes the value failed.
    Failed,
    /// Every request has the attribute, but the front end does not know it: an address that the server did not pass on.
    Unknown,
}

/// One entry of a descriptor: Envoy describes a request by such pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptorEntry {
    /// The key, such as `remote_address` or `generic_key`.
    pub key: String,
    /// The value.
    pub value: String,
}

/// An attribute that a request may have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attribute {
    /// The client's address.
    Ip,
    /// The method, such as `GET`.
    Method,
    /// The path, without the query: decoded, and without `.` and `..`, since rules compare it literally. Where services
    /// may interpret the path in several ways, this is the decoded form; [`Attributes::other_paths`] has the others.
    Path,
    /// The requested host.
    Host,
    /// The scheme by which the client sent the request, in lower case: `http` or `https`. No client must be able to choose it.
    Scheme,
    /// A header, by its name in lower case.
    Header(Box<str>),
    /// A cookie, by its name.
    Cookie(Box<str>),
    /// A query parameter, by its name.
    Query(Box<str>),
    /// A claim of the request's token, by its name.
    Jwt(Box<str>),
    /// A path parameter, by its name in the rule's `match`: `id` of `/users/{id}`.
    Param(Box<str>),
    /// The domain of a request from Envoy.
    Domain,
    /// An entry of the descriptor of a request from Envoy, by its key. Of several entries with the same key, the first.
    Descriptor(Box<str>),
    /// A name that the front end or the file's `identity` defines: `account`, `device`, an argument.
    Named(Box<str>),
}

impl fmt::Display for Attribute {
    /// Formats the attribute in rule syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip => f.write_str("ip"),
            Self::Method => f.write_str("method"),
            Self::Path => f.write_str("resource"),
            Self::Host => f.write_str("host"),
            Self::Scheme => f.write_str("scheme"),
            Self::Header(name) => write!(f, "header({name})"),
            Self::Cookie(name) => write!(f, "cookie({name})"),
            Self::Query(name) => write!(f, "query({name})"),
            Self::Jwt(name) => write!(f, "jwt({name})"),
            Self::Param(name) => write!(f, "param({name})"),
            Self::Domain => f.write_str("domain"),
            Self::Descriptor(key) => write!(f, "descriptor({key})"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
