//! The heads of forwarded requests and responses: which headers the gateway removes, and which it adds.
//!
//! # What always holds
//! - A request that reaches an upstream has one host and one length.
//! - Hop-by-hop headers (`Connection` and the headers it names, `Keep-Alive`, `Transfer-Encoding`, `Upgrade`, `TE`
//!   except for trailers) are not forwarded, in either direction. The headers that `Connection` names are removed
//!   before the rules see the request, and so are those that services may read as another one that the rules read.
//! - Headers about the client's identity (`X-Forwarded-*`, `Forwarded`) are forwarded only if they come from a trusted
//!   proxy.

mod trailers;
mod upstream_head;

pub(crate) use trailers::{Padded, TrailerFilter};
pub(crate) use upstream_head::{HeaderSink, UpstreamRequest, is_forwarded};

use crate::section::{GatewaySection, UpstreamGroup};
use http::Version;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::request::Parts;

/// Adds a `Host` to a request without one, as HTTP/1.0 allows: rules then see the `Host` that the upstream gets.
pub(crate) fn add_host(head: &mut Parts, gateway: &GatewaySection) {
    if head.version > Version::HTTP_10 || head.uri.authority().is_some() || head.headers.contains_key(HOST) {
        return;
    }
    let first = gateway.upstream_groups().flat_map(UpstreamGroup::upstreams).next();
    if let Some(host) = first.and_then(|first| HeaderValue::try_from(first.authority()).ok()) {
        head.headers.insert(HOST, host);
    }
}

/// Returns the protocol of a requested upgrade.
pub(crate) fn upgrade(head: &Parts) -> Option<HeaderValue> {
    if head.version != Version::HTTP_11 {
        return None;
    }
    let protocols = head.headers.get(UPGRADE)?;
    // Upgrading HTTP/1 to another HTTP version or to TLS would let all later requests bypass the rules.
    let is_http = |protocol: &str| {
        let protocol = protocol.trim().to_ascii_lowercase();
        protocol.starts_with("h2")
            || protocol.starts_with("h3")
            || protocol.starts_with("http")
            || protocol.starts_with("tls")
    };
    let bypasses_rules = protocols.to_str().map_or(true, |list| list.split(',').any(is_http));
    let is_single = head.headers.get_all(UPGRADE).iter().nth(1).is_none();
    (!bypasses_rules && is_single && list_contains(&head.headers, CONNECTION, "upgrade")).then(|| protocols.clone())
}

/// Returns `true` if a comma-separated list contains the word.
fn list_contains(headers: &HeaderMap, list: HeaderName, word: &str) -> bool {
    let values = headers.get_all(list).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
