//! The heads of requests and answers on their way through: what a client may send at all, what ends at the gateway, and what it
//! adds.
//!
//! # What always holds
//! - A request that reaches an upstream has one host and one length.
//! - What concerns one connection (`Connection` and what it names, `Keep-Alive`, `Transfer-Encoding`, `Upgrade`, `TE` but for
//!   trailers) goes no further, in both directions. What `Connection` names is removed before the rules see the request.
//! - What a client says about who it is (`X-Forwarded-*`, `Forwarded`) goes on only if it comes from a trusted proxy.

mod check;
mod coding;
mod trailers;
mod upstream_head;

pub(super) use check::upgrade;
pub(crate) use check::{Rejected, check};
pub(super) use coding::check_coding;
pub(super) use trailers::{Padded, TrailerFilter, may_trail};
pub(super) use upstream_head::{HeaderSink, UpstreamRequest, goes_on};

use diana_rules::Gateway;
use http::Version;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use smallvec::SmallVec;

/// Headers that a connection names as its own. Hardly ever there is one.
pub(super) type Named = SmallVec<[HeaderName; 1]>;

/// Whether a header is about one connection, whatever it says.
pub(super) fn ends_here(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade" | "http2-settings"
    )
}

/// The headers that `Connection` names, which end with it.
pub(super) fn named(headers: &HeaderMap) -> Named {
    let mut named = Named::new();
    // To look at the names costs less than to ask for one, and mostly it is not there.
    if headers.keys().any(|name| *name == CONNECTION) {
        headers.get_all(CONNECTION).iter().for_each(|list| name(list, &mut named));
    }
    named
}

/// Adds what a `Connection` names.
pub(super) fn name(list: &HeaderValue, named: &mut Named) {
    // Mostly it is one of these.
    if list.as_bytes().eq_ignore_ascii_case(b"close") || list.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
        return;
    }
    let words = list.to_str().unwrap_or_default().split(',');
    let names = words.filter_map(|word| HeaderName::from_bytes(word.trim().as_bytes()).ok());
    // Nobody may make a request one for no host, or a message one without an end. `TE` is for each connection anyway, and what
    // it says about trailers is told to the next. The others end here by themselves, and the gateway still needs them.
    let stays = |name: &HeaderName| *name == HOST || *name == CONTENT_LENGTH || *name == TE || ends_here(name);
    named.extend(names.filter(|name| !stays(name)));
}

/// Removes the headers that `Connection` names, which no upstream gets: so no rule may see them either. Otherwise a client could
/// send a key that only the rules see, and a new one each time.
pub(crate) fn remove_named(headers: &mut HeaderMap) {
    for name in named(headers) {
        headers.remove(name);
    }
}

/// Names the host of a request that says none, as HTTP/1.0 may: rules then see the `Host` that the upstream gets.
pub(super) fn name_host(head: &mut Parts, gateway: &Gateway) {
    if head.version > Version::HTTP_10 || head.uri.authority().is_some() || head.headers.contains_key(HOST) {
        return;
    }
    let upstreams = gateway.routes.iter().flat_map(|route| &route.upstream);
    let first = gateway.upstream.iter().chain(upstreams).next();
    if let Some(name) = first.and_then(|first| HeaderValue::try_from(first.authority()).ok()) {
        head.headers.insert(HOST, name);
    }
}

/// Whether a list of words has this one.
fn names(headers: &HeaderMap, list: HeaderName, word: &str) -> bool {
    let values = headers.get_all(list).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|named| named.trim().eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
