//! A descriptor as rules see it.

use crate::envoy::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use diana_http::head::{DescribedHead, HeadDescription, HeadPolicy};
use diana_http::{HttpAttributes, MAX_FORM_BYTES, form_bytes, normal_method, normal_scheme};
use diana_rules::attributes::DescriptorEntry;
use diana_rules::{Attribute, Attributes};
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

/// The maximum length of the paths of all descriptors of a call. Rules compare the path of each: more would take longer than a
/// millisecond. Seldom more than a few hundred bytes are a path.
const MAX_PATHS: usize = 32 << 10;

/// The heads of requests that the descriptors of a call describe. Most often all of them have the same path, which is read
/// once.
pub(super) struct DescribedHeads {
    heads: Vec<DescribedHead>,
    /// The index of each descriptor's, if it has a path of HTTP.
    head_of: Vec<Result<Option<usize>, Rejected>>,
}

/// The gateway would reject the request that a descriptor describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rejected;

impl DescribedHeads {
    /// Reads the heads. Once the paths of all descriptors are longer than [`MAX_PATHS`] together, or the forms of all odd paths
    /// longer than those of one may be, the rest is rejected.
    pub(super) fn read(descriptors: &[RateLimitDescriptor], policy: &HeadPolicy) -> Self {
        let (mut heads, mut known, mut bytes, mut forms) = (Vec::new(), HashMap::new(), 0, 0);
        let head_of = descriptors.iter().map(|descriptor| {
            let entry = |key: &str| entry(descriptor.entries.iter().map(|entry| (&*entry.key, &*entry.value)), key);
            let Some(path) = entry("path") else { return Ok(None) };
            bytes += path.len();
            if bytes > MAX_PATHS {
                return Err(Rejected);
            }
            let (method, host) = (entry("method"), entry("host"));
            *known.entry((path, method, host)).or_insert_with(|| {
                forms += form_bytes(path.split('?').next().unwrap_or(path));
                if forms > MAX_FORM_BYTES {
                    return Err(Rejected);
                }
                let description = HeadDescription { path, method, host, cookies: None };
                let head = DescribedHead::read(&description, policy).map_err(|_| Rejected)?;
                Ok(head.map(|head| {
                    heads.push(head);
                    heads.len() - 1
                }))
            })
        });
        let head_of = head_of.collect();
        Self { heads, head_of }
    }

    /// Returns the attributes of each head.
    pub(super) fn attributes(&self) -> Vec<HttpAttributes<'_>> {
        self.heads.iter().map(DescribedHead::attributes).collect()
    }

    /// Returns the attributes for each descriptor: those of its head.
    pub(super) fn by_descriptor<'a>(
        &'a self,
        attributes: &'a [HttpAttributes<'a>],
    ) -> impl Iterator<Item = Result<Option<&'a HttpAttributes<'a>>, Rejected>> {
        self.head_of.iter().map(|head| head.map(|index| attributes.get(index?)))
    }
}

/// One descriptor of a request.
///
/// The entries `remote_address`, `path`, `method`, `host` and `scheme` are the usual attributes of a request, so that ordinary rules
/// apply, too; so are the names of the file's `identity`. Without `remote_address` there is no `ip`.
#[derive(Debug)]
pub(super) struct Descriptor<'a> {
    domain: &'a str,
    pub(super) entries: Vec<DescriptorEntry>,
    hits: u64,
    ip: Option<IpAddr>,
    /// The head of the request that the entries describe.
    http: Option<&'a HttpAttributes<'a>>,
}

impl<'a> Descriptor<'a> {
    pub(super) fn new(
        domain: &'a str,
        descriptor: RateLimitDescriptor,
        hits: u64,
        http: Option<&'a HttpAttributes<'a>>,
    ) -> Self {
        let entries =
            descriptor.entries.into_iter().map(|entry| DescriptorEntry { key: entry.key, value: entry.value });
        let mut new = Self { domain, entries: entries.collect(), hits, ip: None, http };
        new.ip = new.entry("remote_address").and_then(|address| address.parse().ok());
        new
    }

    fn entry(&self, key: &str) -> Option<&str> {
        entry(self.entries.iter().map(|entry| (&*entry.key, &*entry.value)), key)
    }
}

/// Returns the value of the first entry with this key.
fn entry<'a>(mut entries: impl Iterator<Item = (&'a str, &'a str)>, key: &str) -> Option<&'a str> {
    entries.find(|(name, _)| *name == key).map(|(_, value)| value)
}

impl Attributes for Descriptor<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        match attribute {
            Attribute::Domain => Some(Cow::Borrowed(self.domain)),
            Attribute::Descriptor(key) => self.entry(key).map(Cow::Borrowed),
            Attribute::Named(name) => self.entry(name).map(Cow::Borrowed),
            Attribute::Ip => self.ip.map(|ip| Cow::Owned(ip.to_string())),
            Attribute::Method => self.entry("method").map(|method| Cow::Borrowed(normal_method(method))),
            Attribute::Scheme => self.entry("scheme").map(|scheme| Cow::Borrowed(normal_scheme(scheme))),
            Attribute::Path => match self.http {
                Some(http) => http.get(attribute),
                // The name of something else is compared as it is.
                None => self.entry("path").and_then(|path| path.split(['?', '#']).next()).map(Cow::Borrowed),
            },
            Attribute::Host => match self.http {
                Some(http) => http.get(attribute),
                None => self.entry("host").map(Cow::Borrowed),
            },
            Attribute::Query(_) => self.http?.get(attribute),
            _ => None,
        }
    }

    fn other_paths(&self) -> &[String] {
        self.http.map_or(&[], HttpAttributes::other_paths)
    }

    fn descriptor(&self) -> &[DescriptorEntry] {
        &self.entries
    }

    fn hits(&self) -> u64 {
        self.hits
    }

    fn passes_names(&self) -> bool {
        true
    }

    fn ip(&self) -> Option<IpAddr> {
        self.ip
    }
}
