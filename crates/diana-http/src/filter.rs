//! The filter: rules for HTTP requests.

use crate::attributes::HttpAttributes;
use crate::check_future::CheckFuture;
use crate::client_ip::client_address;
use crate::options::FilterOptions;
use diana::Engine;
use diana::store::{MemoryStore, Store};
use http::request::Parts;
use http::{HeaderMap, Request};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Decides about HTTP requests by the rules of an [`Engine`]. Cloning is cheap; clones share their state.
pub struct Filter<S: Store + 'static = MemoryStore>(Arc<Inner<S>>);

/// The state that all clones share.
pub(crate) struct Inner<S: Store + 'static> {
    pub(crate) engine: Arc<Engine<S>>,
    pub(crate) options: FilterOptions,
}

impl<S: Store + 'static> Filter<S> {
    /// Creates a filter that trusts no proxies, and sends the IETF's `RateLimit` headers to clients.
    pub fn new(engine: Arc<Engine<S>>) -> Self {
        Self::with_options(engine, FilterOptions::default())
    }

    /// Creates a filter with options.
    pub fn with_options(engine: Arc<Engine<S>>, options: FilterOptions) -> Self {
        Self(Arc::new(Inner { engine, options }))
    }

    /// Returns a copy for one thread, with its own reference count, which would otherwise be contended between threads.
    #[must_use]
    pub fn for_thread(&self) -> Self {
        Self::with_options(Arc::clone(&self.0.engine), self.0.options.clone())
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Arc<Engine<S>> {
        &self.0.engine
    }

    /// Returns the client's address, as reported by trusted proxies. `peer` is the address of the connection.
    pub fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        client_address(headers, peer, &self.0.options.trusted_proxies)
    }

    /// Decides about a request, and waits as long as its rules require. `client` is the result of
    /// [`client`](Self::client).
    ///
    /// The request is only read during this call. Local limits are decided immediately, without an allocation; dropping
    /// the future refunds everything.
    pub fn check<B>(&self, request: &Request<B>, client: Option<IpAddr>) -> CheckFuture<S> {
        self.decide(&HttpAttributes::of(request, client))
    }

    /// Like [`check`](Self::check), for the head of a request.
    pub fn check_head(&self, head: &Parts, client: Option<IpAddr>) -> CheckFuture<S> {
        self.decide(&HttpAttributes::of_head(head, client))
    }

    pub(crate) fn options(&self) -> &FilterOptions {
        &self.0.options
    }

    pub(crate) fn decide(&self, request: &HttpAttributes<'_>) -> CheckFuture<S> {
        CheckFuture::begin(&self.0, request)
    }
}

impl<S: Store + 'static> Clone for Filter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Store + 'static> fmt::Debug for Filter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("engine", &self.0.engine).field("options", &self.0.options).finish()
    }
}
