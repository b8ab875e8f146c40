//! Requests that rules and the inner service may interpret differently.

use crate::options::FilterOptions;
use crate::path::malformed_path;
use diana::rules::matching::split_host;
use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::uri::Authority;

/// Returns why a request is rejected with 400, before any rule is checked or charged; `None` if it is well-formed.
pub(super) fn malformed(head: &Parts, options: &FilterOptions) -> Option<&'static str> {
    if let Some(problem) = malformed_path(head.uri.path(), options.http.escaped_slash) {
        return Some(problem);
    }
    let mut hosts = head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let header = hosts.next();
    if hosts.next().is_some() {
        return Some("there is more than one Host");
    }
    let authority = head.uri.authority().map(Authority::as_str).map(str::as_bytes);
    let is_invalid = header.into_iter().chain(authority).any(|host| split_host(host).is_none());
    is_invalid.then_some("the Host is invalid")
}
