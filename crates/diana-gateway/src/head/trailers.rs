//! Trailers: a header that is not forwarded is not forwarded as a trailer either.

use super::is_forwarded;
use diana_http::head::{ConnectionHeaders, connection_headers, is_trailer_allowed};
use diana_net::PeerTrust;
use http::Version;
use http::header::{HeaderMap, HeaderValue};
use http::request::Parts;

/// Decides which trailers of a request are forwarded.
#[derive(Debug)]
pub(crate) struct TrailerFilter {
    trust: PeerTrust,
    named: ConnectionHeaders,
    version: Version,
}

/// A trailer value starts or ends with whitespace, which HTTP/2 forbids (RFC 9113, section 8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Padded;

impl TrailerFilter {
    pub(crate) fn new(head: &Parts, trust: PeerTrust) -> Self {
        Self { trust, named: connection_headers(&head.headers), version: head.version }
    }

    /// Returns the trailers to forward. Over HTTP/1, whitespace around a value is not part of it.
    pub(crate) fn apply(&self, trailers: HeaderMap) -> Result<HeaderMap, Padded> {
        let mut forwarded = HeaderMap::with_capacity(trailers.len());
        for (name, value) in &trailers {
            let trimmed = value.as_bytes().trim_ascii();
            let is_padded = trimmed.len() < value.len();
            if is_padded && self.version == Version::HTTP_2 {
                return Err(Padded);
            }
            if !is_trailer_allowed(name) || !is_forwarded(name, self.trust) || self.named.contains(name) {
                continue;
            }
            if !is_padded {
                forwarded.append(name, value.clone());
            } else if let Ok(value) = HeaderValue::from_bytes(trimmed) {
                forwarded.append(name, value);
            }
        }
        Ok(forwarded)
    }
}
