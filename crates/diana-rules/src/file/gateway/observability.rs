//! What the gateway shows of its decisions: `rate_limit_headers` to clients, `access_log` to you.

/// Which fields of a response tell how much is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimitHeaders {
    /// `RateLimit` and `RateLimit-Policy`, as the IETF has them.
    #[default]
    Ietf,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining` and `X-RateLimit-Reset`.
    X,
    /// All of these.
    Both,
    /// None.
    Off,
}

/// How the log of requests is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// Not at all.
    #[default]
    Off,
    /// A line for people.
    Text,
    /// A line for machines.
    Json,
}

impl RateLimitHeaders {
    pub(crate) const WORDS: [&str; 4] = ["ietf", "x", "both", "off"];
    pub(super) const ALL: [Self; 4] = [Self::Ietf, Self::X, Self::Both, Self::Off];

    /// Whether the fields of the IETF are shown.
    pub fn has_ietf(self) -> bool {
        matches!(self, Self::Ietf | Self::Both)
    }

    /// Whether those that begin with `X-` are shown.
    pub fn has_x(self) -> bool {
        matches!(self, Self::X | Self::Both)
    }
}

impl AccessLogFormat {
    pub(crate) const WORDS: [&str; 3] = ["off", "text", "json"];
    pub(super) const ALL: [Self; 3] = [Self::Off, Self::Text, Self::Json];
}
