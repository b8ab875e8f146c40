//! Options of a filter.

use diana::rules::{RateLimitHeaders, RuleFile, Spelling};
use ipnet::IpNet;

/// Options of a filter, in addition to its rules.
///
/// ```
/// use diana::rules::RateLimitHeaders;
/// use diana_http::FilterOptions;
///
/// let options = FilterOptions::default()
///     .trusted_proxies(["10.0.0.0/8".parse()?])
///     .rate_limit_headers(RateLimitHeaders::Both);
/// # let _ = options;
/// # Ok::<(), ipnet::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct FilterOptions {
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) rate_limit_headers: RateLimitHeaders,
    pub(crate) escaped_slash: Spelling,
}

impl Default for FilterOptions {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            rate_limit_headers: RateLimitHeaders::default(),
            escaped_slash: Spelling::Allow,
        }
    }
}

impl FilterOptions {
    /// Returns the options in the `gateway` section of a rule file.
    pub fn of(file: &RuleFile) -> Self {
        file.gateway.as_ref().map_or_else(Self::default, |gateway| Self {
            trusted_proxies: gateway.trusted_proxies.clone(),
            rate_limit_headers: gateway.rate_limit_headers,
            escaped_slash: gateway.paths.escaped_slash,
        })
    }

    /// Sets the proxies whose forwarding headers are trusted; none by default.
    #[must_use]
    pub fn trusted_proxies(self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trusted_proxies: networks.into_iter().collect(), ..self }
    }

    /// Sets which rate limit headers are sent.
    #[must_use]
    pub fn rate_limit_headers(self, rate_limit_headers: RateLimitHeaders) -> Self {
        Self { rate_limit_headers, ..self }
    }

    /// Sets whether [`RateLimitLayer`](crate::RateLimitLayer) accepts paths with `%2F` or `%5C`; it does by default.
    #[must_use]
    pub fn escaped_slash(self, escaped_slash: Spelling) -> Self {
        Self { escaped_slash, ..self }
    }
}
