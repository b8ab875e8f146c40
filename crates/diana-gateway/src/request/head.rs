//! The heads of forwarded requests and responses: which requests are valid, which headers the gateway removes, and
//! which it adds.
//!
//! # What always holds
//! - A request that reaches an upstream has one host and one length.
//! - Hop-by-hop headers (`Connection` and the headers it names, `Keep-Alive`, `Transfer-Encoding`, `Upgrade`, `TE`
//!   except for trailers) are not forwarded, in either direction. The headers that `Connection` names are removed
//!   before the rules see the request, and so are those that services may read as another one that the rules read.
//! - Headers about the client's identity (`X-Forwarded-*`, `Forwarded`) are forwarded only if they come from a trusted
//!   proxy.

mod check;
mod target;
mod trailers;
mod upstream_head;

pub(crate) use check::{Rejected, check, check_bounds, check_coding, upgrade};
pub use target::parse_target;
pub(crate) use target::parse_visible;
pub(crate) use trailers::{Padded, TrailerFilter, is_trailer_allowed};
use upstream_head::X_FORWARDED_PROTO;
pub(crate) use upstream_head::{HeaderSink, UpstreamRequest, is_forwarded};

use super::RejectedRequest;
use crate::section::{GatewaySection, UpstreamGroup};
use diana_http::{Filter, find_header, set_several};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use http::{StatusCode, Version};
use smallvec::SmallVec;
use std::cell::Cell;

/// The headers that `Connection` names. There is rarely one.
pub(crate) type ConnectionHeaders = SmallVec<[HeaderName; 1]>;

/// Returns `true` if a header is hop-by-hop, whatever its value.
pub(crate) fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade" | "http2-settings"
    )
}

/// Returns the headers that `Connection` names, which are hop-by-hop too.
pub(crate) fn connection_headers(headers: &HeaderMap) -> ConnectionHeaders {
    let mut named = ConnectionHeaders::new();
    headers.get_all(CONNECTION).iter().for_each(|list| add_connection_headers(list, &mut named));
    named
}

/// Adds the headers that a `Connection` value names.
pub(crate) fn add_connection_headers(list: &HeaderValue, named: &mut ConnectionHeaders) {
    // The usual values.
    if list.as_bytes().eq_ignore_ascii_case(b"close") || list.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
        return;
    }
    let items = list.to_str().unwrap_or_default().split(',');
    let names = items.filter_map(|item| HeaderName::from_bytes(item.trim().as_bytes()).ok());
    // A client must not remove the host or the length of a request, nor the scheme that a trusted proxy reports. `TE` is
    // hop-by-hop anyway, and its `trailers` is forwarded. The other hop-by-hop headers are removed later, as the gateway still
    // needs them.
    let stays = |name: &HeaderName| {
        *name == HOST || *name == CONTENT_LENGTH || *name == TE || *name == X_FORWARDED_PROTO || is_hop_by_hop(name)
    };
    named.extend(names.filter(|name| !stays(name)));
}

/// Checks the head of a request that another proxy describes as the gateway checks those of its clients, and prepares it
/// for the rules.
///
/// The proxy decides which headers the service gets. So those that `Connection` names, which it may remove or forward, are
/// ambiguous to rules. The client's address must be determined before, from the whole head.
///
/// # Errors
/// The gateway would reject the request before it evaluates any rule; or a header is an alias of one that the rules read
/// ([`Filter::header_aliases`]): the gateway removes it, but the proxy may forward it.
pub fn prepare_head(head: &mut Parts, gateway: &GatewaySection, filter: &Filter) -> Result<(), RejectedRequest> {
    prepare_described(head, gateway, filter).map_err(RejectedRequest::from)
}

/// Like [`prepare_head`].
pub(crate) fn prepare_described(head: &mut Parts, gateway: &GatewaySection, filter: &Filter) -> Result<(), Rejected> {
    check_bounds(&gateway.bounds, head)?;
    check(head, gateway)?;
    if !filter.header_aliases(&head.headers).is_empty() {
        let detail = "a header whose name services may read as that of another one, which the rules read";
        return Err(Rejected { status: StatusCode::BAD_REQUEST, detail });
    }
    if find_header(&head.headers, &CONNECTION).is_some() {
        connection_headers(&head.headers).iter().for_each(|name| set_several(&mut head.headers, name));
    }
    Ok(())
}

thread_local! {
    /// The memory of a head that is no longer used, for the next one.
    static SPARE: Cell<HeaderMap> = Cell::new(HeaderMap::new());
}

/// The capacity above which the memory of a head is not kept.
const MAX_SPARE: usize = 128;

/// Keeps the memory of a head that is no longer used.
pub(crate) fn recycle(mut headers: HeaderMap) {
    if headers.capacity() <= MAX_SPARE {
        headers.clear();
        SPARE.set(headers);
    }
}

/// Returns an empty map, with the memory of an earlier head.
pub(crate) fn recycled() -> HeaderMap {
    SPARE.take()
}

/// Removes the headers that services may read as others, which the rules read: `x_account_id` beside `x-account-id`.
pub(crate) fn remove_aliases(headers: &mut HeaderMap, filter: &Filter) {
    for name in filter.header_aliases(headers) {
        headers.remove(name);
    }
}

/// Removes the headers that `Connection` names. No upstream gets them, so no rule may see them: otherwise a client
/// could send a key that only the rules see, and a new one each time.
pub(crate) fn remove_connection_headers(headers: &mut HeaderMap) {
    if find_header(headers, &CONNECTION).is_some() {
        for name in connection_headers(headers) {
            headers.remove(name);
        }
    }
}

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

/// Returns `true` if a comma-separated list contains the word.
fn list_contains(headers: &HeaderMap, list: HeaderName, word: &str) -> bool {
    let values = headers.get_all(list).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
