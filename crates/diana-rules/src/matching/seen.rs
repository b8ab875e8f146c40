//! What the rules have seen of one request: what the index looks up is asked for once.

use super::Match;
use super::host::normalised;
use super::networks::canonical;
use super::path::PathPattern;
use crate::attributes::{Attribute, Attributes, Doubt};
use std::borrow::Cow;
use std::net::IpAddr;

/// One request, and what has been asked about it.
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a dyn Attributes,
    path: Option<Cow<'a, str>>,
    host: Option<Cow<'a, str>>,
}

/// What rules look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looks {
    path: bool,
    host: bool,
}

impl Looks {
    /// At everything.
    pub(crate) const AT_ALL: Self = Self { path: true, host: true };

    /// What one of these looks at, or both.
    #[must_use]
    pub(crate) fn and(self, own: &Match) -> Self {
        Self { path: self.path || !own.paths.is_empty(), host: self.host || !own.hosts.is_empty() }
    }
}

impl<'a> Seen<'a> {
    pub(crate) fn new(request: &'a dyn Attributes, looks: Looks) -> Self {
        let path = if looks.path { request.get(&Attribute::Path) } else { None };
        let host = if looks.host { request.get(&Attribute::Host).map(as_compared) } else { None };
        Self { request, path, host }
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The host as it is compared.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.request.ip().map(canonical)
    }
}

fn as_compared(host: Cow<'_, str>) -> Cow<'_, str> {
    match host {
        Cow::Borrowed(host) => normalised(host),
        Cow::Owned(host) => Cow::Owned(normalised(&host).into_owned()),
    }
}

/// A request whose host, path and address are as they are compared, so that nobody gets round a rule by spelling them otherwise.
pub(crate) struct Normalised<'a>(pub(crate) &'a dyn Attributes);

impl Normalised<'_> {
    /// Whether it says something else about this than the request itself.
    fn is_about(attribute: &Attribute) -> bool {
        matches!(attribute, Attribute::Host | Attribute::Path | Attribute::Ip)
    }
}

impl Attributes for Normalised<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Host => self.0.get(attribute).map(as_compared),
            Attribute::Path => self.0.get(attribute).map(merged),
            Attribute::Ip => self.ip().map(|address| Cow::Owned(address.to_string())),
            _ => self.0.get(attribute),
        }
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        self.0.doubt(attribute)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.0.ip().map(canonical)
    }
}

/// A path with one slash where there are several, as nginx takes it.
fn merged(path: Cow<'_, str>) -> Cow<'_, str> {
    if !path.contains("//") {
        return path;
    }
    let mut merged = String::with_capacity(path.len());
    for character in path.chars() {
        if character != '/' || !merged.ends_with('/') {
            merged.push(character);
        }
    }
    Cow::Owned(merged)
}

/// A request as one rule sees it: with the parameters of its path, and its host as it is compared.
pub(crate) struct WithParameters<'a, 's> {
    pub(crate) seen: &'a Seen<'s>,
    pub(crate) paths: &'a [PathPattern],
}

impl WithParameters<'_, '_> {
    /// Whether it says something else about this than the request itself.
    pub(crate) fn is_about(attribute: &Attribute) -> bool {
        Normalised::is_about(attribute) || matches!(attribute, Attribute::Param(_))
    }
}

impl Attributes for WithParameters<'_, '_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Param(name) => {
                let path = self.seen.path()?;
                let pattern = self.paths.iter().find(|pattern| pattern.has_parameter(name) && pattern.matches(path))?;
                pattern.parameter(name, path).map(Cow::Borrowed)
            }
            Attribute::Host => self.seen.request.get(attribute).map(as_compared),
            Attribute::Path => self.seen.request.get(attribute).map(merged),
            Attribute::Ip => self.ip().map(|address| Cow::Owned(address.to_string())),
            other => self.seen.request.get(other),
        }
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        self.seen.request.doubt(attribute)
    }

    fn ip(&self) -> Option<IpAddr> {
        self.seen.ip()
    }
}
