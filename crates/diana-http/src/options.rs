//! How a filter is set up.

use diana::rules::{RateLimitHeaders, RuleFile, Spelling};
use ipnet::IpNet;

/// How a filter is set up, beyond its rules.
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
    /// What the `gateway` of a rule file says.
    pub fn of(file: &RuleFile) -> Self {
        file.gateway.as_ref().map_or_else(Self::default, |gateway| Self {
            trusted_proxies: gateway.trusted_proxies.clone(),
            rate_limit_headers: gateway.rate_limit_headers,
            escaped_slash: gateway.paths.escaped_slash,
        })
    }

    /// Whose word about the client's address is believed: nobody's, unless you say so.
    #[must_use]
    pub fn trusted_proxies(self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        Self { trusted_proxies: networks.into_iter().collect(), ..self }
    }

    /// By which fields clients are told where they stand.
    #[must_use]
    pub fn rate_limit_headers(self, rate_limit_headers: RateLimitHeaders) -> Self {
        Self { rate_limit_headers, ..self }
    }

    /// Whether [`RateLimitLayer`](crate::DianaLayer) lets paths pass that contain `%2F` or `%5C`: it does, unless you deny them.
    #[must_use]
    pub fn escaped_slash(self, escaped_slash: Spelling) -> Self {
        Self { escaped_slash, ..self }
    }
}
