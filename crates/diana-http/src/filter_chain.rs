//! Additional filters for requests: an ordered list that runs after Diana's own.
//!
//! Diana's filter is always the first: a request that it denies does not reach the others. Those are the user's: they
//! check a signature or a token, or add a header.

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::Full;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// The result of a filter.
pub type FilterFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Response<Full<Bytes>>>> + Send + 'a>>;

/// An additional filter for requests, after Diana's own.
///
/// ```
/// use bytes::Bytes;
/// use diana_http::{FilterChain, FilterFuture, HttpFilter};
/// use http::{Request, Response, StatusCode, request::Parts};
/// use http_body_util::Full;
/// use std::net::{IpAddr, Ipv4Addr};
///
/// /// Denies access to `/internal` from other machines.
/// struct LocalOnly;
///
/// impl HttpFilter for LocalOnly {
///     fn name(&self) -> &str {
///         "local-only"
///     }
///
///     fn check<'a>(&'a self, head: &'a mut Parts, client: IpAddr) -> FilterFuture<'a> {
///         Box::pin(async move {
///             if head.uri.path().starts_with("/internal") && !client.is_loopback() {
///                 let mut response = Response::new(Full::new(Bytes::new()));
///                 *response.status_mut() = StatusCode::NOT_FOUND;
///                 return Err(response);
///             }
///             Ok(())
///         })
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let chain = FilterChain::new().and(LocalOnly);
/// let (mut head, ()) = Request::get("/internal/keys").body(()).unwrap().into_parts();
/// let denial = chain.check(&mut head, Ipv4Addr::new(203, 0, 113, 7).into()).await.unwrap_err();
/// assert_eq!((denial.by, denial.response.status()), ("local-only", StatusCode::NOT_FOUND));
/// # }
/// ```
pub trait HttpFilter: Send + Sync {
    /// Returns its name for logs.
    fn name(&self) -> &str;

    /// Checks the head of a request, and may change it; the error is the response for a denied request.
    fn check<'a>(&'a self, head: &'a mut Parts, client: IpAddr) -> FilterFuture<'a>;
}

/// An ordered list of filters. Cloning is cheap; clones share them.
#[derive(Clone, Default)]
pub struct FilterChain {
    filters: Vec<Arc<dyn HttpFilter>>,
}

/// A request that a filter of the chain denied.
#[derive(Debug)]
#[non_exhaustive]
pub struct FilterChainDenial<'a> {
    /// The name of the filter.
    pub by: &'a str,
    /// The response.
    pub response: Response<Full<Bytes>>,
}

impl FilterChain {
    /// Creates an empty chain, which passes every request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a filter.
    #[must_use]
    pub fn and(mut self, filter: impl HttpFilter + 'static) -> Self {
        self.filters.push(Arc::new(filter));
        self
    }

    /// Returns `true` if there are no filters.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns the filters, in order.
    pub fn filters(&self) -> impl Iterator<Item = &dyn HttpFilter> {
        self.filters.iter().map(|filter| &**filter)
    }

    /// Runs the filters in order; the first that denies ends it.
    pub async fn check(&self, head: &mut Parts, client: IpAddr) -> Result<(), FilterChainDenial<'_>> {
        for filter in &self.filters {
            if let Err(response) = filter.check(head, client).await {
                return Err(FilterChainDenial { by: filter.name(), response });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for FilterChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.filters().map(HttpFilter::name)).finish()
    }
}
