//! The service of the layer. It rejects requests that rules and the inner service may interpret differently.

use super::LayerState;
use super::body::RateLimitBody;
use super::future::{PendingRequest, RateLimitFuture};
use crate::attributes::HttpAttributes;
use crate::options::FilterOptions;
use crate::path::malformed_path;
use crate::throttle::ThrottledBody;
use diana::rules::matching::split_host;
use http::header::{HOST, HeaderValue};
use http::request::Parts;
use http::uri::Authority;
use http::{Request, Response};
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A rate-limited service; created by [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<C> {
    inner: C,
    state: Arc<LayerState>,
}

impl<C> RateLimit<C> {
    pub(super) fn new(inner: C, state: Arc<LayerState>) -> Self {
        Self { inner, state }
    }

    /// Returns the inner service.
    pub fn inner(&self) -> &C {
        &self.inner
    }
}

impl<C, B, R> Service<Request<B>> for RateLimit<C>
where
    C: Service<Request<ThrottledBody<B>>, Response = Response<R>> + Clone,
    R: Body,
{
    type Response = Response<RateLimitBody<R>>;
    type Error = C::Error;
    type Future = RateLimitFuture<C, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let filter = &self.state.filter;
        if let Some(detail) = malformed(&head, filter.options()) {
            return RateLimitFuture::rejected(detail);
        }
        let client = self.state.peer_lookup.peer(&head).map(|peer| filter.client(&head.headers, peer));
        let acquiring = filter.acquire(&HttpAttributes::of_head(&head, client));
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        RateLimitFuture::new(acquiring, PendingRequest { head, body, inner, client, state: Arc::clone(&self.state) })
    }
}

/// Returns why a request is rejected with 400, before any rule is checked or charged; `None` if it is well-formed.
fn malformed(head: &Parts, options: &FilterOptions) -> Option<&'static str> {
    if let Some(problem) = malformed_path(head.uri.path(), options.http.escaped_slash) {
        return Some(problem);
    }
    let mut hosts = head.headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let header = hosts.next();
    if hosts.next().is_some() {
        return Some("duplicate `Host` header");
    }
    let authority = head.uri.authority().map(Authority::as_str).map(str::as_bytes);
    let is_invalid = header.into_iter().chain(authority).any(|host| split_host(host).is_none());
    is_invalid.then_some("invalid `Host` header")
}

impl<C: Clone> Clone for RateLimit<C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), state: Arc::clone(&self.state) }
    }
}

impl<C: fmt::Debug> fmt::Debug for RateLimit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
