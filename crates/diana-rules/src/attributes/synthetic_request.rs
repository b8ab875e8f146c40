//! Requests built from given values instead of HTTP.

use crate::attributes::{Attribute, Attributes};
use std::borrow::Cow;
use std::net::IpAddr;

/// A request built from given values: for explanations, tests and simulations.
///
/// ```
/// use diana_rules::attributes::SyntheticRequest;
/// use diana_rules::{Attribute, Attributes};
///
/// let request = SyntheticRequest::new("GET", "/search?q=shoes").header("X-Plan", "free").ip([203, 0, 113, 7]);
/// assert_eq!(request.get(&Attribute::Path).as_deref(), Some("/search"));
/// assert_eq!(request.get(&Attribute::Query("q".into())).as_deref(), Some("shoes"));
/// assert_eq!(request.get(&Attribute::Header("x-plan".into())).as_deref(), Some("free"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SyntheticRequest {
    ip: Option<IpAddr>,
    hits: Option<u64>,
    known: Vec<(Attribute, String)>,
}

impl SyntheticRequest {
    /// Creates a request with this method and path. The path may have a query.
    pub fn new(method: impl Into<String>, path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut request = Self::default().with(Attribute::Method, method).with(Attribute::Path, path);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            request = request.with(Attribute::Query(name.into()), value);
        }
        request
    }

    /// Adds a header.
    #[must_use]
    pub fn header(self, name: &str, value: impl Into<String>) -> Self {
        let name = name.to_ascii_lowercase();
        let value = value.into();
        let mut request = self;
        if name == "cookie" {
            for cookie in value.split(';').filter_map(|cookie| cookie.trim().split_once('=')) {
                request = request.with(Attribute::Cookie(cookie.0.into()), cookie.1);
            }
        }
        if name == "host" {
            request = request.host(value.clone());
        }
        request.with(Attribute::Header(name.into()), value)
    }

    /// Sets the host.
    #[must_use]
    pub fn host(self, host: impl Into<String>) -> Self {
        self.with(Attribute::Host, host)
    }

    /// Sets the scheme: `http` or `https`.
    #[must_use]
    pub fn scheme(self, scheme: impl Into<String>) -> Self {
        self.with(Attribute::Scheme, scheme)
    }

    /// Sets the client's address.
    #[must_use]
    pub fn ip(self, ip: impl Into<IpAddr>) -> Self {
        Self { ip: Some(ip.into()), ..self }
    }

    /// Adds a name that a front end would define itself, such as `account`.
    #[must_use]
    pub fn named(self, name: &str, value: impl Into<String>) -> Self {
        self.with(Attribute::Named(name.into()), value)
    }

    /// Sets how many requests it stands for.
    #[must_use]
    pub fn hits(self, hits: u64) -> Self {
        Self { hits: Some(hits), ..self }
    }

    fn with(mut self, attribute: Attribute, value: impl Into<String>) -> Self {
        self.known.retain(|(known, _)| *known != attribute);
        self.known.push((attribute, value.into()));
        self
    }
}

impl Attributes for SyntheticRequest {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        if *attribute == Attribute::Ip {
            return self.ip.map(|ip| ip.to_string().into());
        }
        self.known.iter().find(|(known, _)| known == attribute).map(|(_, value)| Cow::Borrowed(&**value))
    }

    fn hits(&self) -> u64 {
        self.hits.unwrap_or(1)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}
