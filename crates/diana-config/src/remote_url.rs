//! A config server, identified by a URL.

use diana_rules::Secret;
use diana_rules::document::Format;
use diana_rules::multi_host_url::Address;
use diana_rules::secret::redact_url;
use diana_rules::section::SectionNotRegistered;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::time::Duration;
use url::Url;

/// A config server.
///
/// | URL | document | how changes are noticed |
/// |---|---|---|
/// | `http://host/path`, `https://...` | the response to a GET | polled every 5 s ([`poll`](Self::poll)) with `If-None-Match`, or by long polling ([`long_poll`](Self::long_poll)) |
/// | `etcd://host:2379,host:2379/diana/rules`, `etcds://` with TLS | the key `/diana/rules`; `?key=diana/rules` for a key without the slash | a watch, and a read every 30 s |
/// | `redis://host:6379/0?key=diana:rules`, `rediss://` with TLS | the string value of that key (`diana:rules` by default) | a message on the channel with the key's name, keyspace events if the server has them enabled, and a read every 5 s |
///
/// Writers to Redis publish a message: `SET diana:rules ...`, `PUBLISH diana:rules ''`. User and password may be in the
/// URL (`https://user:password@host/`), or be [set](Self::credentials). A proxy from the environment is not used.
///
/// ```
/// use diana_config::Remote;
/// use std::time::Duration;
///
/// let remote = Remote::parse("https://config.example.com/diana.yaml")?.token("s3cret").long_poll(Duration::from_secs(30));
/// assert!(!format!("{remote:?}").contains("s3cret"));
/// assert!(Remote::parse("ftp://example.com").is_err());
/// # Ok::<(), diana_config::RemoteError>(())
/// ```
#[derive(Clone)]
pub struct Remote {
    pub(super) location: Location,
    pub(super) token: Option<Secret>,
    pub(super) credentials: Option<(String, Secret)>,
    pub(super) poll: Option<Duration>,
    pub(super) long_poll: Option<Duration>,
    pub(super) timeout: Duration,
    format: Option<Format>,
    redacted: String,
    identity: String,
}

/// The location of the document.
#[derive(Clone)]
pub(super) enum Location {
    /// An HTTP URL without user and password.
    Http(Url),
    Etcd {
        /// `http://host:port`, in the order to try.
        endpoints: Vec<String>,
        key: String,
    },
    Redis {
        /// The URL without user and password, and without the key.
        url: Url,
        key: String,
    },
}

/// The config server can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The URL is not a valid config server.
    #[error("invalid config server URL `{url}`: {what}")]
    #[non_exhaustive]
    InvalidUrl {
        /// The URL without secrets.
        url: String,
        /// The problem.
        what: String,
    },
    /// The file has a section `remote` that was not parsed.
    #[error(transparent)]
    NotRegistered(#[from] SectionNotRegistered),
}

/// The default poll interval of HTTP and Redis.
pub(super) const POLL: Duration = Duration::from_secs(5);

const TIMEOUT: Duration = Duration::from_secs(3);

/// The default key in Redis.
const REDIS_KEY: &str = "diana:rules";

impl Remote {
    /// Parses a URL; see the table above.
    pub fn parse(url: &str) -> Result<Self, RemoteError> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let parsed = match scheme {
            "http" | "https" => http(url),
            "etcd" | "etcds" => etcd(url),
            "redis" | "rediss" => redis(url),
            _ => Err("unknown scheme; expected http, https, etcd, etcds, redis or rediss".to_owned()),
        };
        parsed.map_err(|what| RemoteError::InvalidUrl { url: redact_url(url), what })
    }

    /// Sets a bearer token for an HTTP config server. Surrounding whitespace is removed.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(Secret::new(token.into().trim())), ..self }
    }

    /// Sets user and password; they take precedence over those of the URL.
    #[must_use]
    pub fn credentials(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { credentials: Some((user.into(), Secret::new(password.into()))), ..self }
    }

    /// Sets the poll interval (see the table; at least 100 ms).
    #[must_use]
    pub fn poll(self, every: Duration) -> Self {
        Self { poll: Some(every.max(Duration::from_millis(100))), ..self }
    }

    /// Enables long polling of an HTTP config server, which may delay its response for this time until the document
    /// changes: the request has `If-None-Match` and `Prefer: wait=SECONDS` (RFC 7240). A server that responds at once
    /// is polled once a second.
    #[must_use]
    pub fn long_poll(self, wait: Duration) -> Self {
        Self { long_poll: Some(wait.max(Duration::from_secs(1))), ..self }
    }

    /// Sets the timeout of one response (3 s), in addition to the time of a long poll.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the format of the document; by default, the extension of the path or the key determines it.
    #[must_use]
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Returns the URL for display: without user, password and query.
    pub(super) fn redacted(&self) -> &str {
        &self.redacted
    }

    /// Returns the identity of the config server: the URL without user and password.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn effective_format(&self) -> Format {
        let name = match &self.location {
            Location::Http(url) => url.path(),
            Location::Etcd { key, .. } | Location::Redis { key, .. } => key,
        };
        self.format.unwrap_or_else(|| Format::of_name(name))
    }

    fn new(location: Location, credentials: Option<(String, Secret)>, identity: String, redacted: String) -> Self {
        let (token, poll, long_poll, format) = (None, None, None, None);
        Self { location, token, credentials, poll, long_poll, timeout: TIMEOUT, format, redacted, identity }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location: _, token, credentials, poll, long_poll, timeout, format, redacted, identity: _ } = self;
        f.debug_struct("Remote")
            .field("url", redacted)
            .field("token", token)
            .field("credentials", credentials)
            .field("poll", poll)
            .field("long_poll", long_poll)
            .field("timeout", timeout)
            .field("format", format)
            .finish()
    }
}

fn http(url: &str) -> Result<Remote, String> {
    let (url, credentials) = split_credentials(url)?;
    let identity = url.to_string();
    let mut redacted = url.clone();
    redacted.set_fragment(None);
    if redacted.query().is_some() {
        // A query may contain a token.
        redacted.set_query(Some("***"));
    }
    Ok(Remote::new(Location::Http(url), credentials, identity, redacted.into()))
}

fn redis(url: &str) -> Result<Remote, String> {
    let (mut url, credentials) = split_credentials(url)?;
    let mut key = REDIS_KEY.to_owned();
    for (name, value) in url.query_pairs() {
        match &*name {
            "key" if !value.is_empty() => key = value.into_owned(),
            _ => return Err("invalid query; expected `key=NAME`".to_owned()),
        }
    }
    url.set_query(None);
    let database = url.path().trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("invalid path; expected a database number, and the key as `?key=NAME`".to_owned());
    }
    let redacted = format!("{url}?key={key}");
    Ok(Remote::new(Location::Redis { url, key }, credentials, redacted.clone(), redacted))
}

/// Splits user and password from the URL.
fn split_credentials(url: &str) -> Result<(Url, Option<(String, Secret)>), String> {
    let mut url = Url::parse(url).map_err(|error| error.to_string())?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err("missing host".to_owned());
    }
    let credentials = (!url.username().is_empty() || url.password().is_some())
        .then(|| (decoded(url.username()), Secret::new(decoded(url.password().unwrap_or_default()))));
    // These can't fail if there is a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok((url, credentials))
}

/// Parses an etcd URL manually, since `Url` does not support several hosts.
fn etcd(url: &str) -> Result<Remote, String> {
    let Address { scheme, user, hosts, path, query, .. } = Address::of(url);
    let credentials = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        (decoded(name), Secret::new(decoded(password)))
    });
    let key = match query.map(|query| query.split_once('=')) {
        None => (!path.is_empty()).then(|| format!("/{}", decoded(path))),
        Some(Some(("key", key))) if path.is_empty() => Some(decoded(key)),
        Some(_) => return Err("invalid query; expected `key=NAME`, in place of the path".to_owned()),
    };
    let key = key.filter(|key| !key.is_empty()).ok_or("missing key; expected etcd://host:2379/KEY")?;
    let transport = if scheme == "etcds" { "https" } else { "http" };
    let mut endpoints = Vec::new();
    for host in hosts.split(',') {
        let endpoint =
            Url::parse(&format!("{transport}://{host}")).map_err(|error| format!("invalid host: {error}"))?;
        let name = endpoint.host_str().unwrap_or_default();
        // Only a host and a port are allowed.
        if endpoint.path() != "/" || endpoint.query().is_some() || endpoint.fragment().is_some() {
            return Err("invalid host; expected `NAME:PORT`".to_owned());
        }
        endpoints.push(format!("{transport}://{name}:{}", explicit_port(host).unwrap_or(2379)));
    }
    let redacted =
        format!("{scheme}://{hosts}{}", if key.starts_with('/') { key.clone() } else { format!("?key={key}") });
    Ok(Remote::new(Location::Etcd { endpoints, key }, credentials, redacted.clone(), redacted))
}

/// Returns the port as written: `Url` drops the default port of the scheme.
fn explicit_port(host: &str) -> Option<u16> {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    after_address.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
