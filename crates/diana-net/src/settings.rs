//! Settings of every HTTP server of a file, and of the services beside it: the client's part of the section `gateway`.

use crate::{ClientBounds, Timeouts};
use diana_http::head::HeadPolicy;
use diana_rules::http_settings::{HttpSettings, SpellingPolicy};

/// The settings for clients: how to serve them, and which of their requests to reject before any rule.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerSettings {
    /// The trusted proxies, the rate limit headers, and the accepted spellings of paths.
    pub http: HttpSettings,
    /// Whether methods may be in lower case, such as `post`.
    pub any_case_methods: SpellingPolicy,
    /// The bounds on what one client may send.
    pub bounds: ClientBounds,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// Whether every connection begins with a PROXY protocol header.
    pub proxy_protocol: bool,
}

impl ServerSettings {
    /// Creates settings without the PROXY protocol.
    pub fn new(http: HttpSettings, bounds: ClientBounds, timeouts: Timeouts, any_case_methods: SpellingPolicy) -> Self {
        Self { http, any_case_methods, bounds, timeouts, proxy_protocol: false }
    }

    /// Returns which heads of requests are rejected.
    #[inline]
    pub fn heads(&self) -> HeadPolicy {
        HeadPolicy::new(self.any_case_methods, self.http.escaped_slash).bounds(self.bounds.headers, self.bounds.body)
    }

    /// Sets whether every connection begins with a PROXY protocol header.
    #[must_use]
    pub fn proxy_protocol(self, proxy_protocol: bool) -> Self {
        Self { proxy_protocol, ..self }
    }
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self::new(HttpSettings::default(), ClientBounds::default(), Timeouts::default(), SpellingPolicy::Deny)
    }
}
