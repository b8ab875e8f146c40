//! An upstream URL: `http://127.0.0.1:3000`, `https://api.example.com`, `h2c://127.0.0.1:50051`.
//!
//! It has a scheme, a host and a port, and nothing else: the path comes from the request. The parts are stored
//! separately, so that the URL is parsed only once.

use diana_document::Node;
use diana_document::Problem;
use diana_document::scalar;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// An upstream.
///
/// ```
/// use diana_rules::upstream_url::{Scheme, Upstream};
///
/// let upstream = "https://[2001:db8::1]".parse::<Upstream>()?;
/// assert_eq!((upstream.scheme, &*upstream.host, upstream.port), (Scheme::Https, "2001:db8::1", 443));
/// assert_eq!(upstream.authority(), "[2001:db8::1]");
/// assert_eq!(upstream.to_string(), "https://[2001:db8::1]");
/// # Ok::<(), diana_rules::upstream_url::InvalidUpstream>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Upstream {
    /// The protocol.
    pub scheme: Scheme,
    /// The name or address, in lower case; an IPv6 address has no brackets.
    pub host: String,
    /// The port; the default port of the scheme if the URL has none.
    pub port: u16,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `http://`: HTTP/1.1 without TLS.
    Http,
    /// `https://`: TLS, with HTTP/2 or HTTP/1.1 negotiated by ALPN.
    Https,
    /// `h2c://`: HTTP/2 without TLS.
    H2c,
}

/// A text that is not a valid upstream URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUpstream(&'static str);

const NO_URL: InvalidUpstream = InvalidUpstream("expected a URL such as http://127.0.0.1:3000");
const NO_HOST: InvalidUpstream =
    InvalidUpstream("expected a scheme, a host and an optional port, such as http://127.0.0.1:3000");

impl Scheme {
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Https, Self::H2c];

    /// The scheme as in a URL: `https`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::H2c => "h2c",
        }
    }

    /// The default port.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http | Self::H2c => 80,
            Self::Https => 443,
        }
    }
}

impl Upstream {
    /// Returns host and port as in a URL or a `Host` header: `[::1]:8080`, without the default port of the scheme.
    pub fn authority(&self) -> String {
        let Self { scheme, host, port } = self;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == scheme.default_port() { host } else { format!("{host}:{port}") }
    }

    /// Reads an upstream from a file.
    pub fn parse_node(node: &Node, what: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        scalar::parsed(node, what, str::parse::<Self>, problems)
    }
}

impl FromStr for Upstream {
    type Err = InvalidUpstream;

    fn from_str(text: &str) -> Result<Self, InvalidUpstream> {
        let (name, rest) = text.split_once("://").ok_or(NO_URL)?;
        let scheme = Scheme::ALL.into_iter().find(|scheme| scheme.as_str().eq_ignore_ascii_case(name)).ok_or(NO_URL)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (authority, None),
        };
        let port = match port {
            None => scheme.default_port(),
            Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                port.parse().ok().filter(|port| *port > 0).ok_or(NO_HOST)?
            }
            Some(_) => return Err(NO_HOST),
        };
        let is_name = |host: &str| {
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        };
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse::<Ipv6Addr>().map_err(|_| NO_HOST)?.to_string(),
            None if is_name(host) => host.to_ascii_lowercase(),
            None => return Err(NO_HOST),
        };
        Ok(Self { scheme, host, port })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority())
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn urls_round_trip() {
        for (written, shown) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://127.0.0.1:80/", "http://127.0.0.1"),
            ("https://API.example.com", "https://api.example.com"),
            ("https://a:80", "https://a:80"),
            ("h2c://a:50051", "h2c://a:50051"),
            ("H2C://a_b-c.d:80", "h2c://a_b-c.d"),
            ("http://[0:0::1]:8080", "http://[::1]:8080"),
            ("http://[::1]", "http://[::1]"),
        ] {
            let upstream = written.parse::<Upstream>().unwrap();
            assert_eq!(upstream.to_string(), shown);
            assert_eq!(shown.parse::<Upstream>().unwrap(), upstream);
        }
    }

    #[test]
    fn reports_invalid_urls() {
        for text in ["", "a:80", "ftp://a", "://a", "httpx://a", "http:/a"] {
            assert_eq!(text.parse::<Upstream>(), Err(NO_URL), "{text}");
        }
        for text in [
            "http://",
            "http:///",
            "http://:80",
            "http://a:0",
            "http://a:65536",
            "http://a:+80",
            "http://a:",
            "http://a/b",
            "http://a?b",
            "http://me:pw@a",
            "http://::1",
            "http://[::1",
            "http://[]",
            "http://[a]",
            "http://a b",
            "http://a//",
            "http://bücher.example",
        ] {
            assert_eq!(text.parse::<Upstream>(), Err(NO_HOST), "{text}");
        }
    }
}
