//! A request as the rules see it: the attributes that the index looks up are read once.

use super::Match;
use super::host::normalised;
use super::path::PathPattern;
use crate::attributes::{Attribute, Attributes, DescriptorEntry, Doubt};
use crate::networks::canonical;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

/// One request, with its host and path already read.
pub struct RequestView<'a> {
    /// The request.
    pub request: &'a dyn Attributes,
    path: Option<Cow<'a, str>>,
    other_paths: &'a [String],
    host: Option<Cow<'a, str>>,
}

/// The attributes that a [`RequestView`] reads up front.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NeededAttributes {
    path: bool,
    /// The other forms of the path, too.
    other_paths: bool,
    host: bool,
}

impl NeededAttributes {
    /// The host and all forms of the path.
    pub const ALL: Self = Self { path: true, other_paths: true, host: true };

    /// Adds the attributes that a `match` reads.
    #[must_use]
    pub fn and(self, matches: &Match) -> Self {
        let other_paths = !matches.paths.is_empty() || matches.when.is_some() || !matches.others.is_empty();
        Self {
            path: self.path || !matches.paths.is_empty(),
            other_paths: self.other_paths || other_paths,
            host: self.host || !matches.hosts.is_empty(),
        }
    }

    /// Adds the attributes that a rule with lists reads: `allow` and `deny` compare keys, which may be paths.
    #[must_use]
    pub fn with_lists(self) -> Self {
        Self { other_paths: true, ..self }
    }
}

impl<'a> RequestView<'a> {
    /// Computes what is needed of a request.
    pub fn new(request: &'a dyn Attributes, needed: NeededAttributes) -> Self {
        let path = if needed.path { request.get(&Attribute::Path) } else { None };
        let other_paths = if needed.other_paths { request.other_paths() } else { &[] };
        let host = if needed.host { request.get(&Attribute::Host).map(as_compared) } else { None };
        Self { request, path, other_paths, host }
    }

    /// Creates a view for routes: with only the form of the path that keeps escaped separators.
    pub fn for_routes(request: &'a dyn Attributes, needed: NeededAttributes) -> Self {
        let mut view = Self::new(request, needed);
        if let Some(literal) = std::mem::take(&mut view.other_paths).first() {
            view.path = Some(Cow::Borrowed(literal));
        }
        view
    }

    /// The decoded form of the path.
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// All forms of the path: first the decoded one, then the [others](Attributes::other_paths).
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.path.as_deref().into_iter().chain(self.other_paths())
    }

    /// All forms of the path except the first.
    pub fn other_paths(&self) -> impl Iterator<Item = &str> {
        self.other_paths.iter().map(String::as_str)
    }

    /// Returns `true` if the path has other forms.
    pub fn has_other_paths(&self) -> bool {
        !self.other_paths.is_empty()
    }

    /// The normalised host.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the address of the client.
    pub fn ip(&self) -> Option<IpAddr> {
        self.request.ip().map(canonical)
    }
}

fn as_compared(host: Cow<'_, str>) -> Cow<'_, str> {
    match host {
        Cow::Borrowed(host) => normalised(host),
        Cow::Owned(host) => Cow::Owned(normalised(&host).into_owned()),
    }
}

/// A request with normalised host, path and address, so that no spelling of them evades a rule.
pub struct Normalised<'a>(pub &'a dyn Attributes);

impl Normalised<'_> {
    /// Returns `true` if this attribute is normalised.
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

    fn other_paths(&self) -> &[String] {
        self.0.other_paths()
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        self.0.doubt(attribute)
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        self.0.descriptor()
    }

    fn ip(&self) -> Option<IpAddr> {
        self.0.ip().map(canonical)
    }
}

/// Merges repeated slashes of a path, like nginx's `merge_slashes`.
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

/// A request as one rule sees it: with the parameters of its path, and its host normalised.
pub struct WithParameters<'a, 's> {
    pub(crate) view: &'a RequestView<'s>,
    pub(crate) paths: &'a [PathPattern],
    /// The form of the path to use, if it is not the first.
    pub(crate) form: Option<&'a str>,
}

impl WithParameters<'_, '_> {
    /// Returns `true` if this attribute is normalised or a path parameter.
    pub fn is_about(attribute: &Attribute) -> bool {
        Normalised::is_about(attribute) || matches!(attribute, Attribute::Param(_))
    }
}

impl Attributes for WithParameters<'_, '_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Param(name) => {
                let of_form = |path| {
                    let pattern =
                        self.paths.iter().find(|pattern| pattern.has_parameter(name) && pattern.matches(path))?;
                    pattern.parameter(name, path).map(Cow::Borrowed)
                };
                match self.form {
                    Some(form) => of_form(form),
                    // The rule may match another form than the first: `/projects/{id}` and `/projects/group%2Fname`.
                    None => self.view.paths().find_map(of_form),
                }
            }
            Attribute::Host => self.view.request.get(attribute).map(as_compared),
            Attribute::Path => match self.form {
                Some(form) => Some(merged(Cow::Borrowed(form))),
                None => self.view.request.get(attribute).map(merged),
            },
            Attribute::Ip => self.ip().map(|address| Cow::Owned(address.to_string())),
            other => self.view.request.get(other),
        }
    }

    fn other_paths(&self) -> &[String] {
        if self.form.is_some() { &[] } else { self.view.request.other_paths() }
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        self.view.request.doubt(attribute)
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        self.view.request.descriptor()
    }

    fn ip(&self) -> Option<IpAddr> {
        self.view.ip()
    }
}

impl fmt::Debug for RequestView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestView")
    }
}

impl fmt::Debug for Normalised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Normalised")
    }
}

impl fmt::Debug for WithParameters<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WithParameters")
    }
}
