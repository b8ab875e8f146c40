//! Additional filters for requests: an ordered list that runs after Diana's own, or before it.
//!
//! Diana's filter should be the first: a request that it denies does not reach the others. Those check permissions, a
//! signature or a token, or add a header.

use crate::rate_limit_filter::Filter;
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
    /// Returns its name, for logs and for the order of the filters.
    fn name(&self) -> &str;

    /// Checks the head of a request, and may change it; the error is the response for a denied request.
    fn check<'a>(&'a self, head: &'a mut Parts, client: IpAddr) -> FilterFuture<'a>;
}

/// An ordered list of filters. Cloning is cheap; clones share them.
#[derive(Clone, Default)]
pub struct FilterChain {
    links: Vec<Link>,
}

/// A filter of a chain.
#[derive(Clone)]
enum Link {
    /// `permissions` of the rule file, which may change.
    Permissions(Filter),
    Other(Arc<dyn HttpFilter>),
}

/// The name of Diana's own filter in the order of a chain.
const LIMITS: &str = "limits";
/// The name of the filter that checks permissions.
const PERMISSIONS: &str = "permissions";

/// An order of filters has a name that no filter has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown filter `{name}`: expected {expected}")]
pub struct UnknownFilter {
    name: String,
    expected: String,
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
        self.links.push(Link::Other(Arc::new(filter)));
        self
    }

    /// Appends the check of `permissions`, which the rules of this filter may have: see [`Filter::check_permission`].
    #[must_use]
    pub fn permissions(mut self, filter: Filter) -> Self {
        self.links.push(Link::Permissions(filter));
        self
    }

    /// Returns the filters that run before Diana's own (`limits`) and those that run after it, in the order of `names`. Filters
    /// that it does not name run last, in the order in which they were added.
    ///
    /// ```
    /// use diana_http::{FilterChain, SignatureFilter};
    /// use http::HeaderName;
    /// use std::time::Duration;
    ///
    /// let signature = || SignatureFilter::new(b"secret", HeaderName::from_static("x-signature"), Duration::from_secs(60));
    /// let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Box<str>>>();
    /// let (before, after) = FilterChain::new().and(signature()).ordered(&names(&["signature", "limits"]))?;
    /// assert_eq!((before.names().count(), after.names().count()), (1, 0));
    /// let error = FilterChain::new().and(signature()).ordered(&names(&["limit"])).unwrap_err();
    /// assert_eq!(error.to_string(), "unknown filter `limit`: expected limits or signature");
    /// # Ok::<(), diana_http::UnknownFilter>(())
    /// ```
    pub fn ordered(self, names: &[Box<str>]) -> Result<(Self, Self), UnknownFilter> {
        let is_known = |name: &str| name == LIMITS || self.names().any(|known| known == name);
        if let Some(name) = names.iter().find(|name| !is_known(name)) {
            let known = std::iter::once(LIMITS).chain(self.names()).collect::<Vec<_>>();
            return Err(UnknownFilter { name: name.to_string(), expected: known.join(" or ") });
        }
        let position = |name: &str| names.iter().position(|listed| **listed == *name).unwrap_or(names.len());
        let mut links = self.links;
        links.sort_by_key(|link| position(link.name()));
        // Without a place of its own, Diana's filter is the first.
        let limits = names.iter().position(|name| **name == *LIMITS).unwrap_or(0);
        let after = links.split_off(links.partition_point(|link| position(link.name()) < limits));
        Ok((Self { links }, Self { links: after }))
    }

    /// Returns `true` if every request passes: there are no filters, and no permissions.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.links.iter().all(|link| matches!(link, Link::Permissions(filter) if !filter.has_permissions()))
    }

    /// Returns the names of the filters, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(Link::name)
    }

    /// Runs the filters in order; the first that denies ends it.
    pub async fn check(&self, head: &mut Parts, client: IpAddr) -> Result<(), FilterChainDenial<'_>> {
        for link in &self.links {
            let checked = match link {
                Link::Permissions(filter) => filter.check_permission(head, Some(client)),
                Link::Other(filter) => filter.check(head, client).await,
            };
            checked.map_err(|response| FilterChainDenial { by: link.name(), response })?;
        }
        Ok(())
    }
}

impl Link {
    fn name(&self) -> &str {
        match self {
            Self::Permissions(_) => PERMISSIONS,
            Self::Other(filter) => filter.name(),
        }
    }
}

impl fmt::Debug for FilterChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
