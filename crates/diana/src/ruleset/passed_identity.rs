//! Requests that have values for the names of `identity` themselves: calls, and descriptors from Envoy.

use diana_rules::attributes::{Attribute, Attributes, DescriptorEntry, Doubt};
use diana_rules::identity::{Identified, Identity};
use std::borrow::Cow;
use std::net::IpAddr;

/// A request that passes by name the values that another request has in a header or elsewhere.
pub(super) struct PassedIdentity<'a> {
    pub(super) request: &'a dyn Attributes,
    pub(super) identity: &'a Identity,
    /// Finds what the request does not pass; `None` for a call, which has nothing else.
    pub(super) identified: Option<Identified<'a, dyn Attributes + 'a>>,
}

impl Attributes for PassedIdentity<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let named =
            || self.identity.names_of(attribute).find_map(|name| self.request.get(&Attribute::Named(name.into())));
        self.request.get(attribute).or_else(named).or_else(|| self.identified.as_ref()?.get(attribute))
    }

    fn other_paths(&self) -> &[String] {
        self.request.other_paths()
    }

    fn unknown_argument(&self, is_asked: &dyn Fn(&str) -> bool) -> Option<&str> {
        self.request.unknown_argument(is_asked)
    }

    fn doubt(&self, attribute: &Attribute) -> Option<Doubt<'_>> {
        self.identified.as_ref()?.doubt(attribute)
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        self.request.descriptor()
    }

    fn ip(&self) -> Option<IpAddr> {
        self.request.ip()
    }
}
