//! A configuration centre, as its URL names it.

use super::redact::Secret;
use crate::document::Format;
use percent_encoding::percent_decode_str;
use std::fmt;
use std::time::Duration;
use url::Url;

/// A configuration centre.
///
/// | URL | what is read | how changes are seen |
/// |---|---|---|
/// | `http://host/path`, `https://...` | what a GET answers | asked every 5 s ([`poll`](Self::poll)) with `If-None-Match`, or held open ([`long_poll`](Self::long_poll)) |
/// | `etcd://host:2379,host:2379/diana/rules`, `etcds://` with TLS | the key `/diana/rules`; `?key=diana/rules` for one without the slash | a watch, and a look every 30 s |
/// | `redis://host:6379/0?key=diana:rules`, `rediss://` with TLS | the string under that key (this one by default) | a message on the channel of the key's name, keyspace events where the server has them on, and a look every 5 s |
///
/// Who writes to Redis tells of it: `SET diana:rules ...`, `PUBLISH diana:rules ''`. User and password may be in the URL
/// (`https://user:password@host/`), or be [given](Self::credentials). A proxy that the environment names is not used.
///
/// ```
/// use diana_rules::Remote;
/// use std::time::Duration;
///
/// let remote = Remote::parse("https://config.example.com/diana.yaml")?.token("s3cret").long_poll(Duration::from_secs(30));
/// assert!(!format!("{remote:?}").contains("s3cret"));
/// assert!(Remote::parse("ftp://example.com").is_err());
/// # Ok::<(), diana_rules::RemoteError>(())
/// ```
#[derive(Clone)]
pub struct Remote {
    pub(super) place: Place,
    pub(super) token: Option<Secret>,
    pub(super) credentials: Option<(String, Secret)>,
    pub(super) poll: Option<Duration>,
    pub(super) long_poll: Option<Duration>,
    pub(super) timeout: Duration,
    format: Option<Format>,
    shown: String,
    identity: String,
}

/// Where it is.
#[derive(Clone)]
pub(super) enum Place {
    /// Without user and password.
    Http(Url),
    Etcd {
        /// `http://host:port`, in the order in which they are tried.
        endpoints: Vec<String>,
        key: String,
    },
    Redis {
        /// Without user and password, and without the key.
        url: Url,
        key: String,
    },
}

/// A URL that names no configuration centre.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{shown}` names no source of rules: {what}")]
#[non_exhaustive]
pub struct RemoteError {
    /// The URL, without what may be a secret.
    shown: String,
    what: String,
}

/// How often a centre is asked that has no better way to tell.
pub(super) const POLL: Duration = Duration::from_secs(5);

const TIMEOUT: Duration = Duration::from_secs(3);

/// What the key is called in a Redis, unless the URL says otherwise.
const REDIS_KEY: &str = "diana:rules";

impl Remote {
    /// Reads a URL; see the table above.
    pub fn parse(url: &str) -> Result<Self, RemoteError> {
        let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
        let parsed = match scheme {
            "http" | "https" => http(url),
            "etcd" | "etcds" => etcd(url),
            "redis" | "rediss" => redis(url),
            _ => Err("its scheme is none of http, https, etcd, etcds, redis, rediss".to_owned()),
        };
        parsed.map_err(|what| RemoteError { shown: hidden(url), what })
    }

    /// A bearer token for an HTTP centre. Spaces and newlines around it are no part of it.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(Secret::new(token.into().trim())), ..self }
    }

    /// User and password; they win over those of the URL.
    #[must_use]
    pub fn credentials(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { credentials: Some((user.into(), Secret::new(password))), ..self }
    }

    /// How often the centre is asked although it told of nothing (see the table; 100 ms at least).
    #[must_use]
    pub fn poll(self, every: Duration) -> Self {
        Self { poll: Some(every.max(Duration::from_millis(100))), ..self }
    }

    /// Asks an HTTP centre to hold its answer back for so long, until there is something new: the request carries
    /// `If-None-Match` and `Prefer: wait=SECONDS` (RFC 7240). One that answers at once all the same is asked once a second.
    #[must_use]
    pub fn long_poll(self, wait: Duration) -> Self {
        Self { long_poll: Some(wait.max(Duration::from_secs(1))), ..self }
    }

    /// How long one answer may take (3 s), beside what a long poll waits.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How the document is written; else the end of the path or the key tells, as with files.
    #[must_use]
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// The URL as people may see it: without user, password and query.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// What tells this centre from others: the URL without user and password.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    pub(super) fn format_in_use(&self) -> Format {
        let name = match &self.place {
            Place::Http(url) => url.path(),
            Place::Etcd { key, .. } | Place::Redis { key, .. } => key,
        };
        self.format.unwrap_or_else(|| Format::of_name(name))
    }

    fn new(place: Place, credentials: Option<(String, Secret)>, identity: String, shown: String) -> Self {
        let (token, poll, long_poll, format) = (None, None, None, None);
        Self { place, token, credentials, poll, long_poll, timeout: TIMEOUT, format, shown, identity }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place: _, token, credentials, poll, long_poll, timeout, format, shown, identity: _ } = self;
        f.debug_struct("Remote")
            .field("url", shown)
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
    let (url, credentials) = split(url)?;
    let identity = url.to_string();
    let mut shown = url.clone();
    shown.set_fragment(None);
    if shown.query().is_some() {
        // Tokens are put there.
        shown.set_query(Some("***"));
    }
    Ok(Remote::new(Place::Http(url), credentials, identity, shown.into()))
}

fn redis(url: &str) -> Result<Remote, String> {
    let (mut url, credentials) = split(url)?;
    let mut key = REDIS_KEY.to_owned();
    for (name, value) in url.query_pairs() {
        match &*name {
            "key" if !value.is_empty() => key = value.into_owned(),
            _ => return Err("what it may say after the `?` is `key=NAME`".to_owned()),
        }
    }
    url.set_query(None);
    let database = url.path().trim_matches('/');
    if !database.is_empty() && database.parse::<u32>().is_err() {
        return Err("its path is the number of a database; the key is given as ?key=NAME".to_owned());
    }
    let shown = format!("{url}?key={key}");
    Ok(Remote::new(Place::Redis { url, key }, credentials, shown.clone(), shown))
}

/// User and password apart from the rest.
fn split(url: &str) -> Result<(Url, Option<(String, Secret)>), String> {
    let mut url = Url::parse(url).map_err(|error| error.to_string())?;
    if url.host_str().is_none_or(str::is_empty) {
        return Err("it names no host".to_owned());
    }
    let credentials = (!url.username().is_empty() || url.password().is_some())
        .then(|| (decoded(url.username()), Secret::new(decoded(url.password().unwrap_or_default()))));
    // Neither can fail where there is a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    Ok((url, credentials))
}

/// By hand: no other URL names several hosts.
fn etcd(url: &str) -> Result<Remote, String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').map_or((rest, None), |(authority, path)| (authority, Some(path)));
    let (user, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    let credentials = user.map(|user| {
        let (name, password) = user.split_once(':').unwrap_or((user, ""));
        (decoded(name), Secret::new(decoded(password)))
    });
    let key = match query.map(|query| query.split_once('=')) {
        None => path.filter(|path| !path.is_empty()).map(|path| format!("/{}", decoded(path))),
        Some(Some(("key", key))) if path.is_none_or(str::is_empty) => Some(decoded(key)),
        Some(_) => return Err("what it may say after the `?` is `key=NAME`, in place of the path".to_owned()),
    };
    let key = key.filter(|key| !key.is_empty()).ok_or("it names no key, as in etcd://host:2379/diana/rules")?;
    let transport = if scheme == "etcds" { "https" } else { "http" };
    let mut endpoints = Vec::new();
    for host in hosts.split(',') {
        let endpoint = Url::parse(&format!("{transport}://{host}")).map_err(|error| format!("a host: {error}"))?;
        let name = endpoint.host_str().unwrap_or_default();
        // What is written is a host and a port, and no more.
        if endpoint.path() != "/" || endpoint.query().is_some() || endpoint.fragment().is_some() {
            return Err("a host is written as NAME:PORT".to_owned());
        }
        endpoints.push(format!("{transport}://{name}:{}", explicit_port(host).unwrap_or(2379)));
    }
    let shown = format!("{scheme}://{hosts}{}", if key.starts_with('/') { key.clone() } else { format!("?key={key}") });
    Ok(Remote::new(Place::Etcd { endpoints, key }, credentials, shown.clone(), shown))
}

/// The port as it is written: a URL forgets one that is its scheme's own.
fn explicit_port(host: &str) -> Option<u16> {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    after_address.rsplit_once(':').and_then(|(_, port)| port.parse().ok())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// A URL that can't be read, without all that may be a secret in it.
fn hidden(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, hosts)| hosts);
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    if scheme.contains('@') || scheme.is_empty() { "***".to_owned() } else { format!("{scheme}://{rest}") }
}

#[cfg(test)]
mod tests;
