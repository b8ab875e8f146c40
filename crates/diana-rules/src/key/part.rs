//! One part of a key.

use super::SimpleKey;
use super::bytes::{KeyBytes, PrefixLengths, UNKNOWN};
use crate::attributes::{Attribute, Attributes, Doubt, SEVERAL, doubt_about};
use crate::expression::Expression;
use crate::matching::path::segments;
use crate::matching::{WithParameters, normal_segment};
use crate::registry::KeyOf;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One part of a key.
#[derive(Clone)]
pub(super) enum Part {
    /// An attribute of the request.
    Of(Attribute),
    /// A name that the file's `identity` defines: the name, and its attribute.
    Named(Box<str>, Attribute),
    /// The client's address, or a prefix of it.
    Address(PrefixLengths),
    /// The value of an expression.
    Expression(Expression),
    /// The value of a registered function, by its registered name.
    Registered(&'static str, Arc<KeyOf>),
    /// The request itself: each request has its own count.
    Request,
}

/// The reason why a part of a key could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The request does not have the attribute.
    Absent,
    /// The expression failed.
    Failed,
    /// The request has several tokens, or several values of an attribute that the expression reads.
    Several,
    /// The request has a token that can't be verified.
    Unverified,
    /// The front end does not know the address of the client.
    Unknown,
    /// The request has a token from the right signer that is expired, not valid yet, or for another issuer or audience.
    Rejected,
}

impl MissingKey {
    fn of(doubt: &Doubt<'_>) -> Self {
        match doubt {
            Doubt::Several => Self::Several,
            Doubt::Unverified => Self::Unverified,
            Doubt::Rejected(_) => Self::Rejected,
            Doubt::Failed => Self::Failed,
            Doubt::Unknown => Self::Unknown,
        }
    }
}

/// Keys of requests whose tokens are not trusted. `REJECTED` prefixes the claim of a token that is signed, but
/// rejected.
const UNVERIFIED: &str = "(unverified)";
const REJECTED: &str = "(rejected) ";

impl Part {
    /// Writes this part of a call's key, unless the call does not pass it. An empty value counts as passed.
    pub(super) fn write_argument(&self, call: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        match self {
            Self::Of(attribute @ Attribute::Named(_)) => {
                key.extend_from_slice(call.get(attribute).ok_or(MissingKey::Absent)?.as_bytes());
                Ok(())
            }
            other => other.write(call, key),
        }
    }

    /// Writes this part of a request's key, unless the request does not have it. An empty value counts as absent.
    pub(super) fn write(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        let text = match self {
            // Most servers treat `//a/` as `/a`, and a client must not get a new count by changing the slashes.
            Self::Of(Attribute::Path) => {
                tidy(&request.get(&Attribute::Path).ok_or(MissingKey::Absent)?, key);
                return Ok(());
            }
            Self::Of(attribute) | Self::Named(_, attribute) => {
                request.get(attribute).ok_or_else(|| self.missing(request))?
            }
            Self::Address(prefix) => {
                prefix.write(request.ip().ok_or_else(|| self.missing(request))?, key);
                return Ok(());
            }
            Self::Expression(expression) => {
                let failed = |_| self.doubt(request).map_or(MissingKey::Failed, |doubt| MissingKey::of(&doubt));
                expression.text_of(request).map_err(failed)?.into()
            }
            Self::Registered(_, of) => of(request).ok_or(MissingKey::Absent)?,
            // The count is not shared with any other request; the store does not keep it.
            Self::Request => return Ok(()),
        };
        if text.is_empty() {
            return Err(self.missing(request));
        }
        key.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Returns the key of a rule that has this part only, if it is simple.
    pub(super) fn simple(&self) -> Option<SimpleKey> {
        match self {
            Self::Of(attribute) | Self::Named(_, attribute) => {
                (!WithParameters::is_about(attribute)).then(|| SimpleKey::Attribute(attribute.clone()))
            }
            Self::Address(prefix) => Some(SimpleKey::Address(*prefix)),
            Self::Expression(_) | Self::Registered(..) | Self::Request => None,
        }
    }

    /// Returns why a request does not have this part.
    #[cold]
    fn missing(&self, request: &dyn Attributes) -> MissingKey {
        self.doubt(request).map_or(MissingKey::Absent, |doubt| MissingKey::of(&doubt))
    }

    fn doubt<'a>(&self, request: &'a dyn Attributes) -> Option<Doubt<'a>> {
        self.attributes().find_map(|attribute| doubt_about(request, attribute))
    }

    /// Writes this part of a request's key. Requests whose token is not trusted share a key for each reason, and so do those
    /// of unknown clients.
    pub(super) fn write_doubtful(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        let Err(missing) = self.write(request, key) else { return Ok(()) };
        match self.doubt(request) {
            Some(Doubt::Several) => key.extend_from_slice(SEVERAL.as_bytes()),
            Some(Doubt::Rejected(claim)) => {
                key.extend_from_slice(REJECTED.as_bytes());
                key.extend_from_slice(claim.as_bytes());
            }
            Some(Doubt::Unverified) => key.extend_from_slice(UNVERIFIED.as_bytes()),
            Some(Doubt::Unknown) => key.push(UNKNOWN),
            Some(Doubt::Failed) | None => return Err(missing),
        }
        Ok(())
    }

    /// Writes a value from a file in the same form as for requests that have it.
    pub(super) fn write_value(&self, value: &str, key: &mut KeyBytes) {
        match (self, address(value)) {
            (Self::Address(prefix), Some((address, _))) => prefix.write(address, key),
            (Self::Of(Attribute::Path), _) => {
                tidy(&value.split('/').map(normal_segment).collect::<Vec<_>>().join("/"), key);
            }
            _ => key.extend_from_slice(value.as_bytes()),
        }
    }

    /// Checks that a value from a file can be this part of a key. The error is the problem, and a suggested fix.
    pub(super) fn check_value(&self, value: &str) -> Result<(), (String, String)> {
        let Self::Address(prefix) = self else { return Ok(()) };
        let Some((address, width)) = address(value) else {
            let what = format!("invalid address `{value}`: a rule by `{self}` counts addresses");
            return Err((what, "expected an address such as 10.0.0.7".to_owned()));
        };
        let counted = if address.is_ipv4() { prefix.v4 } else { prefix.v6 };
        match width {
            Some(width) if width != counted => {
                let what = format!("`{value}` is a /{width} network, but this rule counts each /{counted}");
                Err((what, format!("expected `{address}/{counted}`, or use another rule with `match: {{ip: ...}}`")))
            }
            _ => Ok(()),
        }
    }

    /// Returns the network that shares its count with an address from a file, if it is larger than the address alone.
    pub(super) fn network_of(&self, value: &str) -> Option<IpNet> {
        let Self::Address(prefix) = self else { return None };
        let (address, None) = address(value)? else { return None };
        let counted = if address.is_ipv4() { prefix.v4 } else { prefix.v6 };
        IpNet::new(address, counted)
            .ok()
            .map(|network| network.trunc())
            .filter(|network| network.prefix_len() < network.max_prefix_len())
    }

    /// Returns `true` if this is the client's address, or a prefix of it.
    pub(super) fn is_address(&self) -> bool {
        matches!(self, Self::Address(_))
    }

    pub(super) fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        let (one, several) = match self {
            Self::Of(attribute) | Self::Named(_, attribute) => (Some(attribute), None),
            Self::Address(_) => (Some(&Attribute::Ip), None),
            Self::Expression(expression) => (None, Some(expression.attributes())),
            Self::Registered(..) | Self::Request => (None, None),
        };
        one.into_iter().chain(several.into_iter().flatten())
    }
}

/// Parses an address, and the prefix length if it is a network: `10.0.0.7`, `10.0.0.0/24`.
fn address(text: &str) -> Option<(IpAddr, Option<u8>)> {
    let network = || text.parse::<IpNet>().ok().map(|network| (network.network(), Some(network.prefix_len())));
    text.parse::<IpAddr>().ok().map(|address| (address.to_canonical(), None)).or_else(network)
}

/// Writes a path without empty segments.
fn tidy(path: &str, key: &mut KeyBytes) {
    let start = key.len();
    for segment in segments(path) {
        key.push(b'/');
        key.extend_from_slice(segment.as_bytes());
    }
    if key.len() == start {
        key.push(b'/');
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Of(one), Self::Of(other)) => one == other,
            (Self::Named(one, source), Self::Named(other, its)) => (one, source) == (other, its),
            (Self::Address(one), Self::Address(other)) => one == other,
            (Self::Expression(one), Self::Expression(other)) => one == other,
            (Self::Registered(one, _), Self::Registered(other, _)) => one == other,
            (Self::Request, Self::Request) => true,
            _ => false,
        }
    }
}

impl fmt::Display for Part {
    /// Formats the part in rule syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(attribute) => attribute.fmt(f),
            Self::Named(name, _) => f.write_str(name),
            Self::Address(PrefixLengths::DEFAULT) => f.write_str("ip"),
            Self::Address(PrefixLengths { v4: 32, v6: v6 @ 33.. }) => write!(f, "ip/{v6}"),
            Self::Address(PrefixLengths { v4, v6 }) if *v6 == PrefixLengths::DEFAULT.v6 => write!(f, "ip/{v4}"),
            Self::Address(PrefixLengths { v4, v6 }) => write!(f, "ip/{v4}/{v6}"),
            Self::Expression(expression) => write!(f, "cel({:?})", expression.to_string()),
            Self::Registered(name, _) => f.write_str(name),
            Self::Request => f.write_str("request"),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
