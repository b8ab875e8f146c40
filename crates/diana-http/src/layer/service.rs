//! The service of the layer.

use super::LayerState;
use super::body::RateLimitBody;
use super::future::{RateLimitFuture, Waiting};
use super::malformed::malformed;
use crate::bandwidth::ThrottledBody;
use diana::store::{MemoryStore, Store};
use http::{Request, Response};
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A rate-limited service; created by [`RateLimitLayer`](super::RateLimitLayer).
pub struct RateLimit<C, S: Store + 'static = MemoryStore> {
    inner: C,
    set: Arc<LayerState<S>>,
}

impl<C, S: Store + 'static> RateLimit<C, S> {
    pub(super) fn new(inner: C, set: Arc<LayerState<S>>) -> Self {
        Self { inner, set }
    }

    /// Returns the inner service.
    pub fn inner(&self) -> &C {
        &self.inner
    }
}

impl<C, S, B, R> Service<Request<B>> for RateLimit<C, S>
where
    C: Service<Request<ThrottledBody<B>>, Response = Response<R>> + Clone,
    S: Store + 'static,
    R: Body,
{
    type Response = Response<RateLimitBody<R, S>>;
    type Error = C::Error;
    type Future = RateLimitFuture<C, B, S>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        let filter = &self.set.filter;
        if let Some(why) = malformed(&head, filter.options()) {
            return RateLimitFuture::rejected(why);
        }
        let client = self.set.finds.peer(&head).map(|peer| filter.client(&head.headers, peer));
        let checking = filter.check_head(&head, client);
        // The ready service makes the call; its clone may not be ready.
        let clone = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, clone);
        RateLimitFuture::new(checking, Waiting { head, body, inner, client, diverting: self.set.diverting })
    }
}

impl<C: Clone, S: Store + 'static> Clone for RateLimit<C, S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), set: Arc::clone(&self.set) }
    }
}

impl<C: fmt::Debug, S: Store + 'static> fmt::Debug for RateLimit<C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("inner", &self.inner).finish_non_exhaustive()
    }
}
