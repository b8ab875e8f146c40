//! Options of a filter.

use diana::rules::RuleFile;
use diana::rules::http_settings::{HttpSettings, RateLimitHeaders, SpellingPolicy};
use ipnet::IpNet;

/// Options of a filter, in addition to its rules.
///
/// ```
/// use diana::rules::http_settings::RateLimitHeaders;
/// use diana_http::FilterOptions;
///
/// let options = FilterOptions::default()
///     .trusted_proxies(["10.0.0.0/8".parse()?])
///     .rate_limit_headers(RateLimitHeaders::Both);
/// # let _ = options;
/// # Ok::<(), ipnet::AddrParseError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FilterOptions {
    pub(crate) http: HttpSettings,
}

impl FilterOptions {
    /// Creates options with these settings.
    pub fn new(http: HttpSettings) -> Self {
        Self { http }
    }

    /// Returns the options in the `gateway` section of a rule file.
    pub fn of(file: &RuleFile) -> Self {
        Self { http: file.http_settings() }
    }

    /// Sets the proxies whose forwarding headers are trusted; none by default.
    #[must_use]
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = IpNet>) -> Self {
        self.http.trusted_proxies = networks.into_iter().collect();
        self
    }

    /// Sets which rate limit headers are sent.
    #[must_use]
    pub fn rate_limit_headers(mut self, rate_limit_headers: RateLimitHeaders) -> Self {
        self.http.rate_limit_headers = rate_limit_headers;
        self
    }

    /// Sets whether [`RateLimitLayer`](crate::RateLimitLayer) accepts paths with `%2F` or `%5C`; it does by default.
    #[must_use]
    pub fn escaped_slash(mut self, escaped_slash: SpellingPolicy) -> Self {
        self.http.escaped_slash = escaped_slash;
        self
    }
}
