//! What the gateway reports about its decisions: `rate_limit_headers` to clients, `access_log` to operators.

/// Which response headers report the remaining quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy`, as in the IETF draft.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    X,
    /// Both sets of headers.
    Both,
    /// No headers.
    Off,
}

/// The format of the access log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// No access log.
    #[default]
    Off,
    /// Human-readable lines.
    Text,
    /// JSON lines.
    Json,
}

impl RateLimitHeaders {
    pub(crate) const WORDS: [&str; 4] = ["ietf", "x", "both", "off"];
    pub(super) const ALL: [Self; 4] = [Self::Ietf, Self::X, Self::Both, Self::Off];

    /// Returns `true` if the IETF headers are sent.
    pub fn has_ietf(self) -> bool {
        matches!(self, Self::Ietf | Self::Both)
    }

    /// Returns `true` if the `X-RateLimit-` headers are sent.
    pub fn has_x(self) -> bool {
        matches!(self, Self::X | Self::Both)
    }
}

impl AccessLogFormat {
    pub(crate) const WORDS: [&str; 3] = ["off", "text", "json"];
    pub(super) const ALL: [Self; 3] = [Self::Off, Self::Text, Self::Json];
}
