//! The filter: rules for HTTP requests.

use crate::attributes::HttpAttributes;
use crate::client_ip::client_address;
use crate::denial::{Denial, ResponseFormat};
use crate::options::FilterOptions;
use crate::permit::RequestPermit;
use crate::problem::problem_response;
use bytes::Bytes;
use diana::RuleSet;
use diana::rules::http_settings::RateLimitHeaders;
use diana::rules::rule::OverLimit;
use diana::{AcquireFuture, Engine, Limiter, LoggedRequest, Permit, Quota, Verdict};
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use smallvec::SmallVec;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The length up to which a path is logged.
const MAX_LOGGED_PATH: usize = 200;

/// Decides about HTTP requests by the rules of an [`Engine`]. Cloning is cheap; clones share their state.
pub struct Filter(Arc<FilterState>);

/// The state that all clones share.
struct FilterState {
    engine: Engine,
    options: FilterOptions,
    /// Denials by `permissions` are logged once a second.
    permission_log: Option<Limiter>,
}

impl Filter {
    /// Creates a filter that trusts no proxies, and sends the IETF's `RateLimit` headers to clients.
    pub fn new(engine: Engine) -> Self {
        Self::with_options(engine, FilterOptions::default())
    }

    /// Creates a filter with options.
    pub fn with_options(engine: Engine, options: FilterOptions) -> Self {
        let permission_log = Quota::per_second(1).ok().map(Limiter::new);
        Self(Arc::new(FilterState { engine, options, permission_log }))
    }

    /// Returns the engine.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Returns the client's address, as reported by trusted proxies. `peer` is the address of the connection.
    pub fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        client_address(headers, peer, &self.0.options.http.trusted_proxies)
    }

    /// Returns the headers of a request that services such as WSGI, CGI and PHP read as one that the rules read, although it
    /// has another name: `x_account_id` for `x-account-id`.
    ///
    /// A proxy must not forward them: a client could send one value to the rules, and another one to the service.
    #[inline]
    pub fn header_aliases(&self, headers: &HeaderMap) -> SmallVec<[HeaderName; 1]> {
        self.0.engine.with_rules(|rules| {
            let read = rules.read_headers();
            if read.have_no_alias() {
                return SmallVec::new();
            }
            headers.keys().filter(|name| read.is_alias(name.as_str())).cloned().collect()
        })
    }

    /// Decides about a request, and waits as long as its rules require. `client` is the result of
    /// [`client`](Self::client).
    ///
    /// The request is only read during this call, and local limits are decided immediately. Dropping the future refunds
    /// everything.
    pub fn check<B>(
        &self,
        request: &Request<B>,
        client: Option<IpAddr>,
    ) -> impl Future<Output = Result<RequestPermit, Denial>> + Send + use<'_, B> {
        self.check_attributes(&HttpAttributes::of(request, client))
    }

    /// Decides like [`check`](Self::check) about the attributes of a request.
    pub fn check_attributes(
        &self,
        request: &HttpAttributes<'_>,
    ) -> impl Future<Output = Result<RequestPermit, Denial>> + Send + use<'_> {
        let (acquiring, format) = (self.acquire(request), ResponseFormat::of(request));
        async move {
            match acquiring.await {
                Ok(permit) => Ok(self.permit(permit)),
                Err(denial) => Err(Denial { denial, headers: self.headers(), format }),
            }
        }
    }

    /// Decides about the attributes of a request, without what [`check`](Self::check) adds for HTTP: [`permit`](Self::permit) and
    /// [`denial`](Self::denial) add it.
    #[inline]
    pub fn acquire(&self, request: &HttpAttributes<'_>) -> AcquireFuture {
        self.0.engine.acquire(request)
    }

    /// Returns the permit of a granted request, which is provisional until the request [begins](RequestPermit::begin).
    #[inline]
    pub fn permit(&self, permit: Permit) -> RequestPermit {
        RequestPermit::new(permit, &self.0.engine, self.headers())
    }

    /// Returns the denial of a request, with the response that it accepts.
    #[inline]
    pub fn denial(&self, denial: diana::Denial, request: &HttpAttributes<'_>) -> Denial {
        Denial { denial, headers: self.headers(), format: ResponseFormat::of(request) }
    }

    /// Returns the permit of a request that its rule reroutes, for front ends that can send it to another upstream: it has no
    /// charges, and is not throttled.
    ///
    /// # Errors
    /// The rule denies the request.
    pub fn rerouted(&self, denial: diana::Denial) -> Result<RequestPermit, diana::Denial> {
        match denial.over_limit() {
            Some(OverLimit::Reroute(_)) => Ok(RequestPermit::rerouted(denial, self.headers())),
            _ => Err(denial),
        }
    }

    fn headers(&self) -> RateLimitHeaders {
        self.0.options.http.rate_limit_headers
    }

    /// Decides whether a request has permission, by `permissions` of the rule file. The error is the response to a request
    /// without it, with the status 403; it does not say which rule denied it, but the log does.
    #[allow(clippy::result_large_err, reason = "it is moved once, and filters return it unboxed")]
    pub fn check_permission(&self, head: &Parts, client: Option<IpAddr>) -> Result<(), Response<Full<Bytes>>> {
        self.0.engine.with_rules(|rules| {
            if !rules.has_permissions() {
                return Ok(());
            }
            let request = HttpAttributes::of_head(head, client);
            let Some(permission) = rules.permission(&request).filter(|permission| !permission.is_allowed()) else {
                return Ok(());
            };
            if self.0.permission_log.as_ref().is_some_and(|limiter| limiter.check().is_granted()) {
                let what = if permission.is_enforced() { "no permission" } else { "would have no permission (shadow)" };
                let path = head.uri.path().chars().take(MAX_LOGGED_PATH).collect::<String>();
                let client = client.map_or_else(|| "unknown".to_owned(), |client| client.to_string());
                tracing::info!("{what}: {} {path:?} of {client}, by {permission}", head.method);
            }
            match permission.is_enforced() {
                true => Err(problem_response(StatusCode::FORBIDDEN, "no permission for this request")),
                false => Ok(()),
            }
        })
    }

    /// Returns `true` if the rule file has permissions.
    #[inline]
    pub fn has_permissions(&self) -> bool {
        self.0.engine.with_rules(RuleSet::has_permissions)
    }

    pub(crate) fn options(&self) -> &FilterOptions {
        &self.0.options
    }
}

impl Clone for Filter {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("engine", &self.0.engine).field("options", &self.0.options).finish()
    }
}

/// Logs a denial, a delay, or a denial by a shadow rule, if it is to be logged. `head` is the request's, and `service` the name
/// of the front end.
#[inline]
pub fn log(verdict: &Verdict, head: &Parts, client: Option<IpAddr>, service: &'static str) {
    if verdict.has_log_entries() {
        let (method, path) = (Some(head.method.as_str()), Some(head.uri.path()));
        verdict.log(&LoggedRequest { service, client, method, path });
    }
}
