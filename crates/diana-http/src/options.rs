//! How a filter is set up.

use diana::rules::RuleFile;
use ipnet::IpNet;

/// How a filter is set up, beyond its rules.
///
/// ```
/// use diana_http::{FilterOptions, RateLimitHeaders};
///
/// let options = FilterOptions::default()
///     .trusted_proxies(["10.0.0.0/8".parse()?])
///     .rate_limit_headers(RateLimitHeaders::Both);
/// # let _ = options;
/// # Ok::<(), ipnet::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    pub(crate) trusted_proxies: Vec<IpNet>,
    pub(crate) rate_limit_headers: RateLimitHeaders,
}

/// By which fields clients are told where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy`, as the IETF drafts them.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    X,
    /// Both.
    Both,
    /// None of them.
    Off,
}

impl FilterOptions {
    /// What the `gateway` of a rule file says.
    pub fn of(file: &RuleFile) -> Self {
        file.gateway.as_ref().map_or_else(Self::default, |gateway| Self {
            trusted_proxies: gateway.trusted_proxies.clone(),
            rate_limit_headers: RateLimitHeaders::default(),
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
}
