//! A descriptor as rules see it.

use crate::envoy::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use diana_http::HttpAttributes;
use diana_rules::attributes::DescriptorEntry;
use diana_rules::{Attribute, Attributes};
use http::header::{HOST, HeaderValue};
use http::{Method, Request};
use std::borrow::Cow;
use std::net::IpAddr;

/// One descriptor of a request.
///
/// The entries `remote_address`, `path`, `method` and `host` are the usual attributes of a request, so that ordinary rules
/// apply, too; so are the names of the file's `identity`. Without `remote_address` there is no `ip`.
#[derive(Debug)]
pub(super) struct Descriptor<'a> {
    domain: &'a str,
    pub(super) entries: Vec<DescriptorEntry>,
    hits: u64,
    ip: Option<IpAddr>,
    /// The request that the entries describe, if they have a path.
    request: Option<Request<()>>,
    other_paths: Vec<String>,
    /// The path without its query, if it can't be parsed.
    raw_path: Option<String>,
}

impl<'a> Descriptor<'a> {
    pub(super) fn new(domain: &'a str, descriptor: RateLimitDescriptor, hits: u64) -> Self {
        let entries =
            descriptor.entries.into_iter().map(|entry| DescriptorEntry { key: entry.key, value: entry.value });
        let entries = entries.collect();
        let mut new = Self { domain, entries, hits, ip: None, request: None, other_paths: Vec::new(), raw_path: None };
        new.ip = new.entry("remote_address").and_then(|address| address.parse().ok());
        new.request = new.request();
        match &new.request {
            Some(request) => new.other_paths = HttpAttributes::of(request, None).other_paths().to_vec(),
            None => new.raw_path = new.entry("path").and_then(|path| path.split(['?', '#']).next()).map(str::to_owned),
        }
        new
    }

    /// Returns the value of the first entry with this key.
    fn entry(&self, key: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &*entry.value)
    }

    /// Returns `true` if the path is too long to be parsed (64 KiB with its query), so that its rules are unknown.
    pub(super) fn has_long_path(&self) -> bool {
        self.raw_path.as_ref().is_some_and(|path| path.starts_with('/'))
    }

    /// Parses the path as the gateway does, so that its spellings are one.
    fn request(&self) -> Option<Request<()>> {
        let mut request = Request::new(());
        *request.uri_mut() = escaped(self.entry("path")?).parse().ok()?;
        if let Some(method) = self.entry("method").and_then(|method| Method::from_bytes(method.as_bytes()).ok()) {
            *request.method_mut() = method;
        }
        if let Some(host) = self.entry("host").and_then(|host| HeaderValue::from_str(host).ok()) {
            request.headers_mut().insert(HOST, host);
        }
        Some(request)
    }

    fn http(&self) -> Option<HttpAttributes<'_>> {
        self.request.as_ref().map(|request| HttpAttributes::of(request, None))
    }
}

impl Attributes for Descriptor<'_> {
    fn get(&self, attribute: &Attribute) -> Option<Cow<'_, str>> {
        let owned = |value: Cow<'_, str>| Cow::Owned(value.into_owned());
        match attribute {
            Attribute::Domain => Some(Cow::Borrowed(self.domain)),
            Attribute::Descriptor(key) => self.entry(key).map(Cow::Borrowed),
            Attribute::Named(name) => self.entry(name).map(Cow::Borrowed),
            Attribute::Ip => self.ip.map(|ip| Cow::Owned(ip.to_string())),
            Attribute::Method => self.entry("method").map(|method| Cow::Borrowed(diana_http::normal_method(method))),
            Attribute::Path => match self.http() {
                Some(http) => http.get(attribute).map(owned),
                None => self.raw_path.as_deref().map(Cow::Borrowed),
            },
            Attribute::Host => match self.http() {
                Some(http) => http.get(attribute).map(owned),
                None => self.entry("host").map(Cow::Borrowed),
            },
            Attribute::Query(_) => self.http()?.get(attribute).map(owned),
            _ => None,
        }
    }

    fn other_paths(&self) -> &[String] {
        &self.other_paths
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

/// Escapes what Envoy accepts in a path but a URI can't have, such as `<`: otherwise one such character in the query would
/// hide the path from its rules.
fn escaped(path: &str) -> Cow<'_, str> {
    let is_invalid = |byte: u8| matches!(byte, 0..=b' ' | b'"' | b'<' | b'>' | b'`' | 0x7f);
    if !path.bytes().any(is_invalid) {
        return Cow::Borrowed(path);
    }
    let mut escaped = String::with_capacity(path.len() + 16);
    for character in path.chars() {
        match u8::try_from(character).ok().filter(|byte| is_invalid(*byte)) {
            Some(byte) => escaped.push_str(&format!("%{byte:02X}")),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}
