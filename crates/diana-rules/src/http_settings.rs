//! The settings in `gateway` that every HTTP front end uses, also a service that has no gateway: the proxies whose
//! header about the client's address is trusted, the response headers, and the accepted paths.
//!
//! [`HttpSettings`] is the default section `gateway` of a [`Registry`](crate::Registry): it reads its own fields and
//! ignores all others. A program with a gateway replaces it with the gateway's section, which has these settings too.

use crate::json_schema::{object, one_or_any, word};
use crate::networks::parse_network;
use diana_document::Node;
use diana_document::Problem;
use diana_document::map_reader::MapReader;
use diana_document::scalar;
use ipnet::IpNet;
use serde_json::{Value, json};

/// The settings for HTTP front ends.
///
/// ```
/// use diana_rules::{Document, Registry, RuleFile};
///
/// let document = Document::new("diana.yaml", "{gateway: {trusted_proxies: 10.0.0.0/8, listen: 0.0.0.0:80}, rules: []}");
/// let file = RuleFile::read(&document, &Registry::default())?;
/// assert_eq!(file.http_settings().trusted_proxies, ["10.0.0.0/8".parse().unwrap()]);
/// # Ok::<(), diana_rules::Problems>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpSettings {
    /// The proxies whose reported client address is trusted; none by default.
    pub trusted_proxies: Vec<IpNet>,
    /// Which response headers report the remaining quota.
    pub rate_limit_headers: RateLimitHeaders,
    /// Paths with an escaped `/` or `\`: `%2F`, `%5C`. Accepted by default, since package registries, GitLab and
    /// RabbitMQ need them.
    pub escaped_slash: SpellingPolicy,
}

/// Which response headers report the remaining quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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

/// Whether requests with this spelling are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpellingPolicy {
    /// Such requests are accepted.
    Allow,
    /// Such requests are rejected with 400.
    Deny,
}

/// The fields of `paths`.
const PATHS: [&str; 1] = ["escaped_slash"];

impl RateLimitHeaders {
    const WORDS: [&str; 4] = ["ietf", "x", "both", "off"];
    const ALL: [Self; 4] = [Self::Ietf, Self::X, Self::Both, Self::Off];

    /// Returns `true` if the IETF headers are sent.
    pub fn has_ietf(self) -> bool {
        matches!(self, Self::Ietf | Self::Both)
    }

    /// Returns `true` if the `X-RateLimit-` headers are sent.
    pub fn has_x(self) -> bool {
        matches!(self, Self::X | Self::Both)
    }
}

impl SpellingPolicy {
    /// The words of the file.
    pub const WORDS: [&str; 2] = ["allow", "deny"];
    const ALL: [Self; 2] = [Self::Allow, Self::Deny];

    /// Parses the field `name`: `allow` or `deny`.
    pub fn parse(fields: &mut MapReader<'_>, name: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let word = scalar::word(fields.take(name)?, &format!("`{name}`"), &Self::WORDS, problems)?;
        Self::ALL.get(word).copied()
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            trusted_proxies: Vec::new(),
            rate_limit_headers: RateLimitHeaders::default(),
            escaped_slash: SpellingPolicy::Allow,
        }
    }
}

impl HttpSettings {
    /// The fields of `gateway` that have these settings.
    pub const FIELDS: [&str; 3] = ["trusted_proxies", "rate_limit_headers", "paths"];

    /// Parses the [fields](Self::FIELDS) of `gateway`.
    pub fn parse_fields(fields: &mut MapReader<'_>, problems: &mut Vec<Problem>) -> Self {
        let trusted_proxies = fields.take("trusted_proxies").map(|node| networks(node, problems)).unwrap_or_default();
        let headers = fields.take("rate_limit_headers");
        let headers =
            headers.and_then(|node| scalar::word(node, "`rate_limit_headers`", &RateLimitHeaders::WORDS, problems));
        let escaped_slash = fields.take("paths").and_then(|node| {
            let mut fields = MapReader::of(node, "`paths`", PATHS, problems)?;
            let escaped_slash = SpellingPolicy::parse(&mut fields, "escaped_slash", problems);
            fields.finish(problems);
            escaped_slash
        });
        Self {
            trusted_proxies,
            rate_limit_headers: RateLimitHeaders::ALL[headers.unwrap_or(0)],
            escaped_slash: escaped_slash.unwrap_or(SpellingPolicy::Allow),
        }
    }

    /// Returns the JSON Schema of one of the [fields](Self::FIELDS).
    pub fn schema_of(field: &str) -> Value {
        match field {
            "trusted_proxies" => one_or_any(
                json!({"$ref": "#/$defs/network"}),
                "the proxies whose header about the client's address is trusted; none by default",
                &["10.0.0.0/8"],
            ),
            "rate_limit_headers" => {
                word("the rate limit headers of a response; ietf by default", &RateLimitHeaders::WORDS)
            }
            _ => object("the forms of paths that are accepted", &PATHS, |_| {
                word("whether paths may contain %2F or %5C; allow by default", &SpellingPolicy::WORDS)
            }),
        }
    }
}

fn networks(node: &Node, problems: &mut Vec<Problem>) -> Vec<IpNet> {
    let expected = || "expected an address or a network, such as 10.0.0.0/8".to_owned();
    let read = |text: &str| parse_network(text).ok_or_else(expected);
    let nodes = scalar::one_or_more(node).into_iter();
    nodes.filter_map(|node| scalar::parsed(node, "trusted proxy", read, problems)).collect()
}
