//! Which requests are valid, and which of their headers rules may read: the same for the gateway and for each service that is
//! asked about a request.
//!
//! # What always holds
//! - A request that passes has at most one host (over HTTP/1.1 and HTTP/2 exactly one), and its path has one meaning.
//! - The rules see no header that an upstream may not get: those that `Connection` names are removed, or in a described request
//!   marked as ambiguous; those that services may read as another one that the rules read are removed, or a reason to reject.

mod check;
mod described_head;
mod described_request;
mod target;

pub use check::{HeadPolicy, RejectedRequest, check, check_coding};
pub use described_head::{DescribedHead, HeadDescription};
pub use described_request::{DescribedRequest, InvalidRequest};
pub use target::{parse_target, parse_visible};

use crate::{Filter, X_FORWARDED_PROTO, find_header, set_several};
use http::StatusCode;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use smallvec::SmallVec;

/// The headers that `Connection` names. There is rarely one.
pub type ConnectionHeaders = SmallVec<[HeaderName; 1]>;

/// Returns `true` if a header is hop-by-hop, whatever its value.
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection" | "keep-alive" | "proxy-connection" | "te" | "transfer-encoding" | "upgrade" | "http2-settings"
    )
}

/// Returns the headers that `Connection` names, which are hop-by-hop too.
pub fn connection_headers(headers: &HeaderMap) -> ConnectionHeaders {
    let mut named = ConnectionHeaders::new();
    headers.get_all(CONNECTION).iter().for_each(|list| add_connection_headers(list, &mut named));
    named
}

/// Adds the headers that a `Connection` value names.
pub fn add_connection_headers(list: &HeaderValue, named: &mut ConnectionHeaders) {
    // The usual values.
    if list.as_bytes().eq_ignore_ascii_case(b"close") || list.as_bytes().eq_ignore_ascii_case(b"keep-alive") {
        return;
    }
    let items = list.to_str().unwrap_or_default().split(',');
    let names = items.filter_map(|item| HeaderName::from_bytes(item.trim().as_bytes()).ok());
    // A client must not remove the host or the length of a request, nor the scheme that a trusted proxy reports. `TE` is
    // hop-by-hop anyway, and its `trailers` is forwarded. The other hop-by-hop headers are removed later, as a gateway still
    // needs them.
    let stays = |name: &HeaderName| {
        *name == HOST || *name == CONTENT_LENGTH || *name == TE || *name == X_FORWARDED_PROTO || is_hop_by_hop(name)
    };
    named.extend(names.filter(|name| !stays(name)));
}

/// Removes the headers that `Connection` names. No upstream gets them, so no rule may see them: otherwise a client
/// could send a key that only the rules see, and a new one each time.
pub fn remove_connection_headers(headers: &mut HeaderMap) {
    if find_header(headers, &CONNECTION).is_some() {
        for name in connection_headers(headers) {
            headers.remove(name);
        }
    }
}

/// Removes the headers that services may read as others, which the rules read: `x_account_id` beside `x-account-id`.
pub fn remove_aliases(headers: &mut HeaderMap, filter: &Filter) {
    for name in filter.header_aliases(headers) {
        headers.remove(name);
    }
}

/// Returns `true` if a field may be a trailer, of a request or a response: fields that define how to read a message may
/// not.
pub fn is_trailer_allowed(name: &HeaderName) -> bool {
    let defines_message = matches!(
        name.as_str(),
        "content-length" | "host" | "trailer" | "authorization" | "content-encoding" | "content-type" | "content-range"
    );
    !defines_message && !is_hop_by_hop(name)
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
pub fn prepare_described(head: &mut Parts, policy: &HeadPolicy, filter: &Filter) -> Result<(), RejectedRequest> {
    check(head, policy)?;
    if !filter.header_aliases(&head.headers).is_empty() {
        let detail = "a header whose name services may read as that of another one, which the rules read";
        return Err(RejectedRequest { status: StatusCode::BAD_REQUEST, detail });
    }
    if find_header(&head.headers, &CONNECTION).is_some() {
        connection_headers(&head.headers).iter().for_each(|name| set_several(&mut head.headers, name));
    }
    Ok(())
}
