//! What the rules have seen of one request so far: each thing is asked for once.

use super::host::normalised;
use super::networks::canonical;
use super::path::PathPattern;
use crate::attributes::{Attribute, Attributes};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

/// One request, and what has been asked about it.
pub(crate) struct Seen<'a> {
    pub(crate) request: &'a dyn Attributes,
    path: OnceCell<Option<Cow<'a, str>>>,
    host: OnceCell<Option<Cow<'a, str>>>,
    method: OnceCell<Option<Cow<'a, str>>>,
    ip: OnceCell<Option<IpAddr>>,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(request: &'a dyn Attributes) -> Self {
        let (path, host, method, ip) = (OnceCell::new(), OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { request, path, host, method, ip }
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.get_or_init(|| self.request.get(&Attribute::Path)).as_deref()
    }

    pub(crate) fn method(&self) -> Option<&str> {
        self.method.get_or_init(|| self.request.get(&Attribute::Method)).as_deref()
    }

    /// The host as it is compared.
    pub(crate) fn host(&self) -> Option<&str> {
        let host = || {
            Some(match self.request.get(&Attribute::Host)? {
                Cow::Borrowed(host) => normalised(host),
                Cow::Owned(host) => Cow::Owned(normalised(&host).into_owned()),
            })
        };
        self.host.get_or_init(host).as_deref()
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        *self.ip.get_or_init(|| self.request.ip().map(canonical))
    }
}

/// A request, and the parameters of its path as one rule names them.
pub(crate) struct WithParameters<'a, 's> {
    pub(crate) seen: &'a Seen<'s>,
    pub(crate) paths: &'a [PathPattern],
}

impl Attributes for WithParameters<'_, '_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Path => self.seen.path().map(Cow::Borrowed),
            Attribute::Method => self.seen.method().map(Cow::Borrowed),
            Attribute::Host => self.seen.host().map(Cow::Borrowed),
            Attribute::Param(name) => {
                let path = self.seen.path()?;
                let pattern = self.paths.iter().find(|pattern| pattern.has_parameter(name) && pattern.matches(path))?;
                pattern.parameter(name, path).map(Cow::Borrowed)
            }
            other => self.seen.request.get(other),
        }
    }

    fn ip(&self) -> Option<IpAddr> {
        self.seen.ip()
    }
}
