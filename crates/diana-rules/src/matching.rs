//! Selects the requests of a rule: `match: {path: /search/**, method: GET, host: ..., header: {...}, ip: [...], when:
//! '...'}`; those from Envoy also by `domain` and `descriptor`.
//!
//! All conditions must be true; of several values of one condition, one must match. A rule without `match` applies to
//! all requests. A rule with `call` applies to none: only calls that name it use it.

pub(crate) mod descriptor;
pub(crate) mod glob;
mod host;
pub mod index;
mod name_map;
mod normal_segment;
pub(crate) mod parse;
pub(crate) mod path;
mod path_syntax_hint;
mod request_view;
pub(crate) mod schema;

use crate::attributes::{Attribute, Attributes, SEVERAL};
use crate::expression::Expression;
use crate::names_in_scope::NamesOfMatch;
use crate::networks::Networks;
pub use crate::networks::parse_network;
pub use crate::registry::Matcher;
use descriptor::DescriptorMatch;
use glob::Glob;
use host::HostPattern;
pub use host::{is_valid_host, split_host};
pub use normal_segment::{escaped_byte, normal_segment, push_normal};
use path::PathPattern;
pub use request_view::{NeededAttributes, Normalised, RequestView, WithParameters};
use std::fmt;
use std::sync::Arc;

/// The conditions that select the requests of a rule.
#[derive(Clone, Debug, Default)]
pub struct Match {
    pub(crate) paths: Vec<PathPattern>,
    pub(crate) methods: Vec<Box<str>>,
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) headers: Vec<HeaderMatch>,
    pub(crate) networks: Networks,
    /// The domains of requests from Envoy.
    pub(crate) domains: Vec<Box<str>>,
    pub(crate) descriptor: Option<DescriptorMatch>,
    pub(crate) when: Option<Expression>,
    pub(crate) others: Vec<OtherMatch>,
    /// For a rule that applies to calls only: the names of the arguments that they pass.
    pub(crate) call: Option<Vec<Box<str>>>,
}

/// A header that must have one of several values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderMatch {
    pub(crate) header: Attribute,
    pub(crate) values: Vec<Glob>,
}

/// A registered matcher, with its configuration as it is written.
#[derive(Clone, Debug)]
pub(crate) struct OtherMatch {
    name: &'static str,
    written: String,
    matcher: Arc<dyn Matcher>,
}

/// The condition of a rule's `match` that a request does not meet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// This is a request, and the rule is only for calls that name it.
    Call,
    /// The path differs.
    Path,
    /// The method differs.
    Method,
    /// The host differs.
    Host,
    /// This header has another value, or is absent.
    Header(Attribute),
    /// The address differs.
    Ip,
    /// The domain differs, or the request does not come from Envoy.
    Domain,
    /// The descriptor has other entries.
    Descriptor,
    /// The expression is false.
    When,
    /// The matcher that is registered under this name does not match.
    Other(&'static str),
}

/// The conditions that the index already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexedMatch {
    /// Host and path match.
    HostAndPath,
    /// Nothing.
    None,
}

/// The result of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// It is true.
    Holds,
    /// The expression failed, which counts as a match: an error must not disable a limit.
    Failed,
}

impl NamesOfMatch for Match {
    fn has_parameter(&self, name: &str) -> bool {
        self.paths.iter().any(|path| path.has_parameter(name))
    }

    fn arguments(&self) -> Option<&[Box<str>]> {
        self.call.as_deref()
    }
}

impl Match {
    /// Checks whether the rule applies to this request. The error is the first condition that is not met.
    pub fn check(&self, view: &RequestView<'_>, indexed: IndexedMatch) -> Result<When, Mismatch> {
        if self.call.is_some() {
            return Err(Mismatch::Call);
        }
        if indexed == IndexedMatch::None {
            self.check_host_and_path(view)?;
        }
        if !self.methods.is_empty()
            && !view
                .request
                .get(&Attribute::Method)
                .is_some_and(|method| self.methods.iter().any(|expected| is_for_method(expected, &method)))
        {
            return Err(Mismatch::Method);
        }
        for HeaderMatch { header, values } in &self.headers {
            let value = view.request.get(header);
            // Of several values, the service may use any.
            let is_meant = |value: &str| value == SEVERAL || values.iter().any(|pattern| pattern.matches(value));
            if !value.is_some_and(|value| is_meant(&value)) {
                return Err(Mismatch::Header(header.clone()));
            }
        }
        if !self.domains.is_empty() {
            let domain = view.request.get(&Attribute::Domain);
            if !domain.is_some_and(|domain| self.domains.iter().any(|expected| **expected == *domain)) {
                return Err(Mismatch::Domain);
            }
        }
        if let Some(descriptor) = &self.descriptor
            && !descriptor.matches(view.request.descriptor())
        {
            return Err(Mismatch::Descriptor);
        }
        self.check_rest(view)
    }

    /// Checks whether the rule applies to a call that names it. A rule for requests always does: the call uses its
    /// limit, and its conditions on requests are ignored.
    pub fn check_call(&self, view: &RequestView<'_>) -> Result<When, Mismatch> {
        if self.call.is_some() { self.check_rest(view) } else { Ok(When::Holds) }
    }

    /// Checks the conditions that apply to both requests and calls.
    fn check_rest(&self, view: &RequestView<'_>) -> Result<When, Mismatch> {
        if !self.networks.is_empty() && !view.ip().is_some_and(|address| self.networks.contains(address)) {
            return Err(Mismatch::Ip);
        }
        for OtherMatch { name, matcher, .. } in &self.others {
            let other = |form| matcher.matches(&self.view_of(view, form));
            if !(matcher.matches(view.request) || view.other_paths().any(other)) {
                return Err(Mismatch::Other(name));
            }
        }
        let Some(when) = &self.when else { return Ok(When::Holds) };
        let first = when.holds(&self.view(view));
        if matches!(first, Ok(true)) {
            return Ok(When::Holds);
        }
        let mut has_failed = first.is_err();
        // An exception such as `request.path != "/health"` exempts a request only if every form of the path is exempt.
        if view.has_other_paths()
            && when.attributes().any(|attribute| matches!(attribute, Attribute::Path | Attribute::Param(_)))
        {
            for form in view.other_paths() {
                match when.holds(&self.view_of(view, form)) {
                    Ok(true) => return Ok(When::Holds),
                    Ok(false) => {}
                    Err(_) => has_failed = true,
                }
            }
        }
        if has_failed { Ok(When::Failed) } else { Err(Mismatch::When) }
    }

    /// Returns the attributes that its headers and its expression read.
    pub fn read_attributes(&self) -> impl Iterator<Item = &Attribute> {
        let headers = self.headers.iter().map(|header| &header.header);
        headers.chain(self.when.iter().flat_map(Expression::attributes))
    }

    /// Returns the names of the arguments of a rule for calls of functions.
    pub fn call(&self) -> Option<&[Box<str>]> {
        self.call.as_deref()
    }

    /// Returns the domains of Envoy's rate limit service that it matches.
    pub fn domains(&self) -> &[Box<str>] {
        &self.domains
    }

    /// Checks host and path. The error is the one that differs.
    pub(crate) fn check_host_and_path(&self, view: &RequestView<'_>) -> Result<(), Mismatch> {
        let host = view.host();
        if !self.hosts.is_empty() && !host.is_some_and(|host| self.hosts.iter().any(|pattern| pattern.matches(host))) {
            return Err(Mismatch::Host);
        }
        if !self.paths.is_empty() && !view.paths().any(|path| self.paths.iter().any(|pattern| pattern.matches(path))) {
            return Err(Mismatch::Path);
        }
        Ok(())
    }

    /// Returns `true` if every form of the path matches, and so do host, method and address: for what is allowed.
    pub(crate) fn is_certain(&self, view: &RequestView<'_>) -> bool {
        let is_covered = |path: &str| self.paths.iter().any(|pattern| pattern.matches(path));
        (self.paths.is_empty() || view.path().is_some() && view.paths().all(is_covered))
            && self.check(view, IndexedMatch::None).is_ok()
    }

    /// Returns the request with the parameters of its path.
    pub fn view<'a, 's>(&'a self, view: &'a RequestView<'s>) -> WithParameters<'a, 's> {
        WithParameters { view, paths: &self.paths, form: None }
    }

    /// Returns the request with the parameters of another form of its path.
    pub fn view_of<'a, 's>(&'a self, view: &'a RequestView<'s>, form: &'a str) -> WithParameters<'a, 's> {
        WithParameters { view, paths: &self.paths, form: Some(form) }
    }

    /// Returns `true` if every host and path matches.
    pub fn matches_every_path(&self) -> bool {
        let any_path = |path: &PathPattern| *path.segments() == [path::Segment::Any];
        self.hosts.is_empty() && (self.paths.is_empty() || self.paths.iter().any(any_path))
    }

    /// Returns `true` if it has no conditions other than host and path.
    pub fn is_host_and_path(&self) -> bool {
        let Self { paths: _, methods, hosts: _, headers, networks, domains, descriptor, when, others, call } = self;
        let is_empty = methods.is_empty() && headers.is_empty() && domains.is_empty() && descriptor.is_none();
        is_empty && call.is_none() && networks.is_empty() && when.is_none() && others.is_empty()
    }

    /// Returns `true` if all requests match.
    pub fn is_everything(&self) -> bool {
        self.paths.is_empty() && self.hosts.is_empty() && self.is_host_and_path()
    }

    /// Returns `true` if only requests from Envoy's rate limit filter can match.
    pub fn is_for_envoy(&self) -> bool {
        !self.domains.is_empty() || self.descriptor.is_some()
    }
}

/// Returns the index of the first match (see [`Match::parse_route`]) that the request satisfies.
pub fn first_route<'a>(
    request: &dyn Attributes,
    matches: impl ExactSizeIterator<Item = &'a Match> + Clone,
) -> Option<usize> {
    // Most gateways have no routes.
    if matches.len() == 0 {
        return None;
    }
    let needed = matches.clone().fold(NeededAttributes::default(), NeededAttributes::and);
    let view = RequestView::for_routes(request, needed);
    matches.enumerate().find(|(_, route)| route.check_host_and_path(&view).is_ok()).map(|(index, _)| index)
}

/// Returns `true` if a rule for one method applies to another. Most frameworks run the GET handler for HEAD.
fn is_for_method(expected: &str, method: &str) -> bool {
    expected == method || expected == "GET" && method == "HEAD"
}

impl PartialEq for Match {
    /// Returns `true` if both have the same conditions.
    fn eq(&self, other: &Self) -> bool {
        let Self { paths, methods, hosts, headers, networks, domains, descriptor, when, others, call } = self;
        let same = *paths == other.paths && *methods == other.methods && *hosts == other.hosts && *call == other.call;
        let same = same && *headers == other.headers && *networks == other.networks && *when == other.when;
        let same = same && *domains == other.domains && *descriptor == other.descriptor;
        let written = |other: &OtherMatch| (other.name, other.written.clone());
        same && others.iter().map(written).eq(other.others.iter().map(written))
    }
}

impl fmt::Display for Match {
    /// Describes the conditions, as `GET /search/** of api.example.com`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_everything() {
            return f.write_str("all requests");
        }
        let mut parts = Vec::new();
        if self.call.is_some() {
            parts.push("calls that name it".to_owned());
        }
        let what = [self.methods.join(" or "), either(&self.paths)];
        parts.push(what.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "));
        if !self.hosts.is_empty() {
            parts.push(format!("host {}", either(&self.hosts)));
        }
        parts.extend(self.headers.iter().map(|header| format!("{} is {}", header.header, either(&header.values))));
        if !self.networks.is_empty() {
            parts.push(format!("from {}", self.networks));
        }
        if !self.domains.is_empty() {
            parts.push(format!("domain {}", self.domains.join(" or ")));
        }
        parts.extend(self.descriptor.iter().map(|descriptor| format!("descriptor {descriptor}")));
        parts.extend(self.others.iter().map(|other| format!("{}: {}", other.name, other.written)));
        parts.extend(self.when.iter().map(|when| format!("when {when}")));
        parts.retain(|part| !part.is_empty());
        f.write_str(&parts.join(", "))
    }
}

fn either(values: &[impl fmt::Display]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call => f.write_str("the rule is for calls that name it"),
            Self::Path => f.write_str("the path does not match"),
            Self::Method => f.write_str("the method does not match"),
            Self::Host => f.write_str("the host does not match"),
            Self::Header(header) => write!(f, "{header} is missing or does not match"),
            Self::Ip => f.write_str("the address does not match"),
            Self::Domain => f.write_str("the domain does not match"),
            Self::Descriptor => f.write_str("the descriptor does not match"),
            Self::When => f.write_str("`when` is false"),
            Self::Other(name) => write!(f, "`{name}` does not match"),
        }
    }
}
