//! Patterns of hosts: `api.example.com`, `*.example.com`.

use super::glob::Glob;
use std::borrow::Cow;
use std::fmt;

/// A host, or several by a pattern, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// This one.
    Exact(Box<str>),
    /// Those below this one, at any depth: of `*.example.com`, `example.com` is kept.
    Below(Box<str>),
    /// Those that a pattern with stars elsewhere covers.
    Like(Glob),
}

impl HostPattern {
    /// Reads a pattern; else what is wrong with it, and what was expected.
    pub(crate) fn read(text: &str) -> Result<Self, (String, &'static str)> {
        let expected = "a name such as `api.example.com` or `*.example.com`";
        let is_good = |character: char| character.is_ascii_alphanumeric() || "-._*:[]".contains(character);
        if text.is_empty() || !text.chars().all(is_good) || text.contains("..") {
            return Err((format!("`{text}` is no host"), expected));
        }
        if normalised(text).len() < text.trim_end_matches('.').len() {
            return Err((format!("`{text}` has a port, which hosts are compared without"), expected));
        }
        let text = normalised(text).into_owned();
        Ok(match text.strip_prefix("*.") {
            Some(rest) if !rest.contains('*') => Self::Below(rest.into()),
            None if !text.contains('*') => Self::Exact(text.into()),
            _ => Self::Like(Glob::new(&text)),
        })
    }

    /// Whether a host, [normalised], is meant.
    pub(crate) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Below(name) => host.strip_suffix(&**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Self::Like(glob) => glob.matches(host),
        }
    }
}

/// A host as it is compared: in lower case, without a port and the root's dot, since all of these lead to the same server.
pub(crate) fn normalised(host: &str) -> Cow<'_, str> {
    // Most hosts come as they should, and one look over all bytes at once says so.
    let is_odd = host.bytes().fold(false, |odd, byte| odd | byte.is_ascii_uppercase() | (byte == b':'));
    if !is_odd && !host.ends_with('.') {
        return Cow::Borrowed(host);
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => {
            // Of an address in IPv6, only what follows its bracket is a port.
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { Cow::Owned(name.to_ascii_lowercase()) } else { name.into() }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
            Self::Like(glob) => glob.fmt(f),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_as_servers_do() {
        let matches = |pattern: &str, host: &str| HostPattern::read(pattern).unwrap().matches(&normalised(host));
        for host in
            ["api.example.com", "API.Example.com", "api.example.com:8443", "api.example.com.", "api.example.com.:80"]
        {
            assert!(matches("api.example.com", host), "{host}");
        }
        assert!(matches("*.example.com", "a.b.example.com") && !matches("*.example.com", "example.com"));
        assert!(!matches("*.example.com", "evilexample.com") && !matches("*.example.com", ".example.com"));
        assert!(matches("api-*.example.com", "api-7.example.com") && !matches("api-*.example.com", "www.example.com"));
        assert_eq!(normalised("[2001:db8::1]:8080"), "[2001:db8::1]");
        assert_eq!(normalised("2001:db8::1"), "2001:db8::1");
    }

    #[test]
    fn nonsense_is_told() {
        let wrong = |text: &str| HostPattern::read(text).unwrap_err().0;
        assert_eq!(wrong("http://a.com"), "`http://a.com` is no host");
        assert_eq!(wrong("a.com:8080"), "`a.com:8080` has a port, which hosts are compared without");
        assert_eq!(wrong(""), "`` is no host");
        assert_eq!(wrong("a..b"), "`a..b` is no host");
    }
}
