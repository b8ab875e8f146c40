//! A described request, parsed as the gateway parses one: for `diana explain`, and for `/explain` of the admin API.

use super::{HeadPolicy, RejectedRequest, check, parse_target, remove_connection_headers};
use crate::{HttpAttributes, RequestScheme};
use diana::rules::{Attribute, Attributes};
use http::header::{HOST, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Version};
use std::borrow::Cow;
use std::net::IpAddr;

/// A request described by a user. Its path, query, host and headers are parsed, checked and normalised like those of a
/// request from the network.
///
/// ```
/// use diana::rules::http_settings::SpellingPolicy;
/// use diana::rules::{Attribute, Attributes};
/// use diana_http::head::{DescribedRequest, HeadPolicy};
///
/// let policy = HeadPolicy::new(SpellingPolicy::Deny, SpellingPolicy::Allow);
/// let request = DescribedRequest::new("GET", "/%6Cogin;v=1?x=1")?;
/// assert_eq!(request.get(&Attribute::Path).as_deref(), Some("/login"));
/// assert!(request.rejected(&policy).is_none());
///
/// let dots = DescribedRequest::new("GET", "/x/../login")?.rejected(&policy).unwrap();
/// assert_eq!(dots.to_string(), "answered with 400: the path contains a `.` or `..` segment");
/// # Ok::<(), diana_http::head::InvalidRequest>(())
/// ```
#[derive(Clone, Debug)]
pub struct DescribedRequest {
    head: Parts,
    client: Option<IpAddr>,
    scheme: RequestScheme,
    named: Vec<(Attribute, String)>,
    other_paths: Vec<String>,
}

/// The described request is not valid HTTP.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidRequest(String);

impl DescribedRequest {
    /// Creates a request with this method for this path, optionally with a query. Spaces need no escape.
    pub fn new(method: &str, target: &str) -> Result<Self, InvalidRequest> {
        let invalid =
            |what: &str, text: &str| InvalidRequest(format!("invalid {what} `{text}`: a client cannot send it"));
        let (mut head, ()) = Request::new(()).into_parts();
        head.method = Method::from_bytes(method.as_bytes()).map_err(|_| invalid("method", method))?;
        let uri = parse_target(target.replace(' ', "%20").as_bytes(), &head.method);
        head.uri = uri.ok_or_else(|| invalid("path", target))?;
        // HTTP/1.0 requires no `Host`.
        head.version = Version::HTTP_10;
        let other_paths = HttpAttributes::of_head(&head, None).other_paths().to_vec();
        Ok(Self { head, client: None, scheme: RequestScheme::default(), named: Vec::new(), other_paths })
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self, InvalidRequest> {
        if name.eq_ignore_ascii_case(HOST.as_str()) {
            return self.host(value);
        }
        let invalid = || InvalidRequest(format!("invalid header `{name}: {value}`: a client cannot send it"));
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?;
        self.head.headers.append(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
        remove_connection_headers(&mut self.head.headers);
        Ok(self)
    }

    /// Sets the host.
    pub fn host(mut self, host: &str) -> Result<Self, InvalidRequest> {
        let invalid = |_| InvalidRequest(format!("invalid host `{host}`: a client cannot send it"));
        self.head.headers.insert(HOST, HeaderValue::from_bytes(host.as_bytes()).map_err(invalid)?);
        self.head.version = Version::HTTP_11;
        Ok(self)
    }

    /// Sets the client's address.
    #[must_use]
    pub fn ip(self, ip: IpAddr) -> Self {
        Self { client: Some(ip), ..self }
    }

    /// Sets the scheme by which the client sends it: `http` or `https`.
    #[must_use]
    pub fn scheme(self, scheme: &str) -> Self {
        Self { scheme: RequestScheme::of(scheme), ..self }
    }

    /// Sets an attribute that an application provides by name, such as `account`.
    #[must_use]
    pub fn named(mut self, name: &str, value: &str) -> Self {
        self.named.push((Attribute::Named(name.into()), value.to_owned()));
        self
    }

    /// Returns the gateway's response if it rejects the request before it evaluates any rule; `None` if the rules are
    /// evaluated.
    pub fn rejected(&self, policy: &HeadPolicy) -> Option<RejectedRequest> {
        check(&self.head, policy).err()
    }

    fn http(&self) -> HttpAttributes<'_> {
        HttpAttributes::of_head(&self.head, self.client).with_scheme(self.scheme)
    }
}

impl Attributes for DescribedRequest {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let named = self.named.iter().rfind(|(other, _)| other == attribute);
        let named = named.map(|(_, value)| Cow::Borrowed(&**value));
        named.or_else(|| self.http().get(attribute).map(|value| Cow::Owned(value.into_owned())))
    }

    fn other_paths(&self) -> &[String] {
        &self.other_paths
    }

    fn ip(&self) -> Option<IpAddr> {
        self.client
    }
}
