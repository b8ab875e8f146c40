//! The size of a head, and its copy into memory of that size.

use bytes::BytesMut;
use h2::RecvStream;
use http::header::HeaderMap;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Uri};

/// Copies a head into memory of exactly its size. h2 returns slices of a buffer that may be far larger: a head of a few
/// bytes that arrives in two frames keeps 64 KiB alive.
pub(crate) fn compact(head: &mut Parts) {
    compact_fields(&mut head.headers);
    let mut uri = head.uri.clone().into_parts();
    uri.authority = uri.authority.map(|host| Authority::try_from(host.as_str()).unwrap_or(host));
    uri.path_and_query = uri.path_and_query.map(|path| PathAndQuery::try_from(path.as_str()).unwrap_or(path));
    if let Ok(uri) = Uri::from_parts(uri) {
        head.uri = uri;
    }
}

pub(crate) fn compact_fields(headers: &mut HeaderMap) {
    let mut copy = BytesMut::with_capacity(headers.values().map(HeaderValue::len).sum());
    headers.values().for_each(|value| copy.extend_from_slice(value.as_bytes()));
    let mut copy = copy.freeze();
    for value in headers.values_mut() {
        if let Ok(mut compact) = HeaderValue::from_maybe_shared(copy.split_to(value.len())) {
            compact.set_sensitive(value.is_sensitive());
            *value = compact;
        }
    }
}

/// The overhead that RFC 9113 (section 6.5.2) adds to each field.
const FIELD: usize = 32;

/// Returns the size of the fields, as RFC 9113 defines it for `SETTINGS_MAX_HEADER_LIST_SIZE`.
pub(crate) fn fields_size(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| FIELD + name.as_str().len() + value.len()).sum()
}

/// Returns the size of a head by the same definition.
pub(crate) fn head_size(request: &Request<RecvStream>) -> usize {
    let uri = request.uri();
    let address =
        uri.path().len() + uri.query().map_or(0, str::len) + uri.authority().map_or(0, |host| host.as_str().len());
    4 * FIELD + request.method().as_str().len() + address + fields_size(request.headers())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacting_does_not_change_a_head() {
        for uri in ["http://a.example:80/b/c?d=e", "https://a/", "http://[::1]/?x", "*"] {
            let non_ascii = HeaderValue::from_bytes(b"\xe9").unwrap();
            let request =
                Request::options(uri).header("a", "1").header("b", "").header("a", "2").header("c", non_ascii);
            let (mut head, ()) = request.body(()).unwrap().into_parts();
            head.headers.get_mut("c").unwrap().set_sensitive(true);
            let before = (head.uri.clone(), head.headers.clone());
            compact(&mut head);
            assert_eq!((&head.uri, &head.headers), (&before.0, &before.1));
            assert!(head.headers["c"].is_sensitive());
        }
    }
}
