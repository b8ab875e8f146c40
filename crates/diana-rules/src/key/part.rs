//! One part of a key.

use super::bytes::{KeyBytes, Share};
use crate::attributes::{Attribute, Attributes, Doubt, SEVERAL, doubt_about};
use crate::expression::Expression;
use crate::matching::normal_segment;
use crate::matching::path::segments;
use crate::registry::KeyOf;
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One part of a key.
#[derive(Clone)]
pub(super) enum Part {
    /// What a request says.
    Of(Attribute),
    /// What the file's `identity` gives a name to: the name, and what is looked at.
    Named(Box<str>, Attribute),
    /// The client's address, or the first bits of it.
    Address(Share),
    /// What an expression says.
    Expression(Expression),
    /// What somebody else's function says, by the name that it is registered under.
    Registered(&'static str, Arc<KeyOf>),
    /// The request itself: each has a count of its own.
    Request,
}

/// Why a part of a key could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MissingKey {
    /// The request has no such thing.
    Absent,
    /// The expression failed.
    Failed,
    /// The request has several tokens, or several values of what the expression asks for.
    Several,
    /// The request has a token that can't be verified.
    Unverified,
    /// The request has a token of the right signer that is not valid now, or not for us.
    Rejected,
}

impl MissingKey {
    fn of(doubt: &Doubt<'_>) -> Self {
        match doubt {
            Doubt::Several => Self::Several,
            Doubt::Unverified => Self::Unverified,
            Doubt::Rejected(_) => Self::Rejected,
            Doubt::Failed => Self::Failed,
        }
    }
}

/// The keys of requests whose tokens can't be believed. In front of what a token claims that is signed, but rejected.
const UNVERIFIED: &str = "(unverified)";
const REJECTED: &str = "(rejected) ";

impl Part {
    /// Writes this part of a call's key, unless the call does not tell it. What is told is known, even if it is empty.
    pub(super) fn write_told(&self, call: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        match self {
            Self::Of(attribute @ Attribute::Named(_)) => {
                key.extend_from_slice(call.get(attribute).ok_or(MissingKey::Absent)?.as_bytes());
                Ok(())
            }
            other => other.write(call, key),
        }
    }

    /// Writes this part of a request's key, unless the request has no such thing; an empty one is none.
    pub(super) fn write(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        let text = match self {
            // Most servers take `//a/` for `/a`, and nobody is to get a count of his own by that.
            Self::Of(Attribute::Path) => {
                tidy(&request.get(&Attribute::Path).ok_or(MissingKey::Absent)?, key);
                return Ok(());
            }
            Self::Of(attribute) | Self::Named(_, attribute) => {
                request.get(attribute).ok_or_else(|| self.missing(request))?
            }
            Self::Address(share) => {
                share.write(request.ip().ok_or(MissingKey::Absent)?, key);
                return Ok(());
            }
            Self::Expression(expression) => {
                let failed = |_| self.doubt(request).map_or(MissingKey::Failed, |doubt| MissingKey::of(&doubt));
                expression.text_of(request).map_err(failed)?.into()
            }
            Self::Registered(_, of) => of(request).ok_or(MissingKey::Absent)?,
            // Nobody shares it with anybody; the store is not asked to keep it.
            Self::Request => return Ok(()),
        };
        if text.is_empty() {
            return Err(self.missing(request));
        }
        key.extend_from_slice(text.as_bytes());
        Ok(())
    }

    /// Why a request has no such part.
    #[cold]
    fn missing(&self, request: &dyn Attributes) -> MissingKey {
        self.doubt(request).map_or(MissingKey::Absent, |doubt| MissingKey::of(&doubt))
    }

    fn doubt<'a>(&self, request: &'a dyn Attributes) -> Option<Doubt<'a>> {
        self.attributes().find_map(|attribute| doubt_about(request, attribute))
    }

    /// Writes this part of a request's key; one whose token can't be believed is counted with others of its kind.
    pub(super) fn write_doubtful(&self, request: &dyn Attributes, key: &mut KeyBytes) -> Result<(), MissingKey> {
        let Err(missing) = self.write(request, key) else { return Ok(()) };
        match self.doubt(request) {
            Some(Doubt::Several) => key.extend_from_slice(SEVERAL.as_bytes()),
            Some(Doubt::Rejected(claim)) => {
                key.extend_from_slice(REJECTED.as_bytes());
                key.extend_from_slice(claim.as_bytes());
            }
            Some(Doubt::Unverified) => key.extend_from_slice(UNVERIFIED.as_bytes()),
            Some(Doubt::Failed) | None => return Err(missing),
        }
        Ok(())
    }

    /// Writes a value that a file names, as it is written for requests that have it.
    pub(super) fn write_value(&self, value: &str, key: &mut KeyBytes) {
        match (self, address(value)) {
            (Self::Address(share), Some((address, _))) => share.write(address, key),
            (Self::Of(Attribute::Path), _) => {
                tidy(&value.split('/').map(normal_segment).collect::<Vec<_>>().join("/"), key);
            }
            _ => key.extend_from_slice(value.as_bytes()),
        }
    }

    /// Checks that a value which a file names can be this part of a key; else what is wrong, and what would do.
    pub(super) fn check_value(&self, value: &str) -> Result<(), (String, String)> {
        let Self::Address(share) = self else { return Ok(()) };
        let Some((address, width)) = address(value) else {
            let what = format!("`{value}` is no address, but a rule by `{self}` counts addresses");
            return Err((what, "an address such as 10.0.0.7".to_owned()));
        };
        let counted = if address.is_ipv4() { share.v4 } else { share.v6 };
        match width {
            Some(width) if width != counted => {
                let what = format!("`{value}` is a /{width}, but this rule counts each /{counted}");
                Err((what, format!("`{address}/{counted}`, or another rule with `match: {{ip: ...}}`")))
            }
            _ => Ok(()),
        }
    }

    /// The network that is counted as one with an address which a file names, where that is more than the address alone.
    pub(super) fn network_of(&self, value: &str) -> Option<IpNet> {
        let Self::Address(share) = self else { return None };
        let (address, None) = address(value)? else { return None };
        let counted = if address.is_ipv4() { share.v4 } else { share.v6 };
        IpNet::new(address, counted)
            .ok()
            .map(|network| network.trunc())
            .filter(|own| own.prefix_len() < own.max_prefix_len())
    }

    /// Whether it is the client's address, or a share of it.
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

/// An address as a file writes it, and the width of the network where it is one: `10.0.0.7`, `10.0.0.0/24`.
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
    /// As a rule writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Of(attribute) => attribute.fmt(f),
            Self::Named(name, _) => f.write_str(name),
            Self::Address(Share::USUAL) => f.write_str("ip"),
            Self::Address(Share { v4: 32, v6: v6 @ 33.. }) => write!(f, "ip/{v6}"),
            Self::Address(Share { v4, v6 }) if *v6 == Share::USUAL.v6 => write!(f, "ip/{v4}"),
            Self::Address(Share { v4, v6 }) => write!(f, "ip/{v4}/{v6}"),
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
