//! Host patterns: `api.example.com`, `*.example.com`.

use super::glob::Glob;
use std::borrow::Cow;
use std::fmt;
use std::net::Ipv6Addr;

/// A host, or a pattern of hosts, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// This host.
    Exact(Box<str>),
    /// All subdomains, at any depth: for `*.example.com`, this is `example.com`.
    Subdomains(Box<str>),
    /// A pattern with stars at other positions.
    Glob(Glob),
}

impl HostPattern {
    /// Parses a pattern. The error is the problem, and what was expected.
    pub(crate) fn read(text: &str) -> Result<Self, (String, &'static str)> {
        let expected = "expected a name such as `api.example.com` or `*.example.com`";
        let is_valid = |character: char| character.is_ascii_alphanumeric() || "-._*:[]".contains(character);
        if text.is_empty() || !text.chars().all(is_valid) || text.contains("..") {
            return Err((format!("invalid host `{text}`"), expected));
        }
        if split_host(text.as_bytes()).is_some_and(|(_, port)| port.is_some()) {
            return Err((format!("invalid host `{text}`: hosts are compared without a port"), expected));
        }
        let text = normalised(text).into_owned();
        Ok(match text.strip_prefix("*.") {
            Some(rest) if !rest.contains('*') => Self::Subdomains(rest.into()),
            None if !text.contains('*') => Self::Exact(text.into()),
            _ => Self::Glob(Glob::new(&text)),
        })
    }

    /// Returns `true` if a [normalised] host matches.
    pub(crate) fn matches(&self, host: &str) -> bool {
        match self {
            Self::Exact(name) => **name == *host,
            Self::Subdomains(name) => {
                host.strip_suffix(&**name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            Self::Glob(glob) => glob.matches(host),
        }
    }
}

/// Normalises a host: lower case, without the port and the trailing dot, since all of these forms reach the same
/// server.
pub(crate) fn normalised(host: &str) -> Cow<'_, str> {
    // Most hosts are already normalised.
    if !has_uppercase_or_colon(host.as_bytes()) && !host.ends_with('.') {
        return Cow::Borrowed(host);
    }
    let name = match (split_host(host.as_bytes()), host.split_once(':')) {
        (Some((name, _)), _) => name,
        // A request with an invalid port is still for that name, and must match the name's rules.
        (None, Some((name, rest))) if !rest.contains(':') => name,
        (None, _) => host,
    };
    if let Some(address) = ipv6_literal(name) {
        return Cow::Owned(format!("[{address}]"));
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) { Cow::Owned(name.to_ascii_lowercase()) } else { name.into() }
}

/// Returns `true` if a text has an ASCII uppercase letter or a colon. It checks eight bytes at a time, since this is on the path
/// of every request.
fn has_uppercase_or_colon(text: &[u8]) -> bool {
    let Some(end) = text.last_chunk::<8>() else {
        return text.iter().any(|byte| byte.is_ascii_uppercase() || *byte == b':');
    };
    // The last eight bytes may overlap with the ones before them.
    let (words, _) = text.as_chunks::<8>();
    let bits = words.iter().fold(0, |bits, word| bits | uppercase_or_colon(*word));
    bits | uppercase_or_colon(*end) != 0
}

/// Returns a number that is 0 unless one of eight bytes is an ASCII uppercase letter or a colon.
#[inline]
fn uppercase_or_colon(bytes: [u8; 8]) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let word = u64::from_le_bytes(bytes);
    let low = word & !HIGH;
    // The high bit of a byte is set by a sum if its low bits are at least `A`, or above `Z`. No sum carries into the next byte.
    let (from_a, after_z) = (low + u64::from(0x80 - b'A') * ONES, low + u64::from(0x7f - b'Z') * ONES);
    // The same for bits that differ from a colon: if there are any, the sum sets the high bit.
    let not_colon = (low ^ (u64::from(b':') * ONES)) + 0x7f * ONES;
    ((from_a ^ after_z) | !not_colon) & !word & HIGH
}

/// The longest host, 255 bytes, with a port.
const MAX_LENGTH: usize = 255 + ":65535".len();

/// Splits the value of a `Host` header, or of an HTTP/2 `:authority`, into the host and its port: `uri-host [":" port]`
/// (RFC 9110 §7.2). Returns `None` if it is anything else; a gateway should answer such a request with 400.
///
/// The host is a name, an IPv4 address, or an IPv6 address in brackets. It is neither empty nor longer than 255 bytes,
/// as in nginx and DNS. The port may be empty, and is 65535 at most.
///
/// ```
/// use diana_rules::matching::split_host;
///
/// assert_eq!(split_host(b"api.example.com:8443"), Some(("api.example.com", Some("8443"))));
/// assert_eq!(split_host(b"[2001:db8::1]"), Some(("[2001:db8::1]", None)));
/// assert_eq!(split_host(b"api.example.com:8443,x"), None);
/// ```
pub fn split_host(text: &[u8]) -> Option<(&str, Option<&str>)> {
    let (host, rest) = str::from_utf8(text).ok()?.split_at_checked(host_len(text)?)?;
    Some((host, rest.strip_prefix(':')))
}

/// Returns `true` if a `Host` header is valid, as [`split_host`] accepts it.
pub fn is_valid_host(text: &[u8]) -> bool {
    host_len(text).is_some()
}

/// Returns the length of the host in a valid `Host` header: the rest is empty, or a colon and a port. (A loop over bytes,
/// since this is on the path of every request.)
fn host_len(text: &[u8]) -> Option<usize> {
    if text.len() > MAX_LENGTH {
        return None;
    }
    let mut len = 0;
    if text.first() == Some(&b'[') {
        len = text.iter().position(|byte| *byte == b']')? + 1;
        ipv6_literal(str::from_utf8(text.get(..len)?).ok()?)?;
    } else {
        let mut is_after_dot = false;
        for &byte in text {
            let is_dot = byte == b'.';
            if !NAME_BYTES[usize::from(byte)] || is_dot && is_after_dot {
                break;
            }
            is_after_dot = is_dot;
            len += 1;
        }
    }
    match text.get(len..)? {
        _ if len == 0 => None,
        [] | [b':'] => Some(len),
        [b':', port @ ..] => {
            let is_digits = port.iter().all(u8::is_ascii_digit);
            (is_digits && str::from_utf8(port).is_ok_and(|port| port.parse::<u16>().is_ok())).then_some(len)
        }
        _ => None,
    }
}

/// The characters of host names: `unreserved` and `sub-delims` of RFC 3986. Escapes are not accepted, since no server
/// decodes them.
const NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        #[allow(clippy::cast_possible_truncation, reason = "it is below 256")]
        let character = byte as u8;
        table[byte] = character.is_ascii_alphanumeric()
            || matches!(
                character,
                b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
            );
        byte += 1;
    }
    table
};

/// Parses the address in `[2001:db8::1]`.
fn ipv6_literal(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Subdomains(name) => write!(f, "*.{name}"),
            Self::Glob(glob) => glob.fmt(f),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod tests {
    use super::*;

    #[test]
    fn uppercase_letters_and_colons_are_found_at_every_position() {
        for length in 0..=25 {
            let mut text = vec![b'a'; length];
            assert!(!has_uppercase_or_colon(&text));
            for at in 0..length {
                for byte in 0..=u8::MAX {
                    text[at] = byte;
                    let expected = byte.is_ascii_uppercase() || byte == b':';
                    assert_eq!(has_uppercase_or_colon(&text), expected, "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn hosts_are_compared_normalised() {
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
        assert!(matches("[2001:db8::1]", "[2001:DB8:0:0::1]:80") && !matches("[2001:db8::1]", "[2001:db8::2]"));
        assert!(matches("[2001:DB8:0::1]", "[2001:db8::1]"));
        for invalid in ["shop.example:x", "shop.example:-1", "shop.example:80,x", "shop.example:99999"] {
            assert!(matches("shop.example", invalid), "{invalid}");
        }
    }

    #[test]
    fn splits_hosts_and_ports() {
        for (text, host, port) in [
            ("a", "a", None),
            ("a:", "a", Some("")),
            ("a:80", "a", Some("80")),
            ("a:00080", "a", Some("00080")),
            ("a:65535", "a", Some("65535")),
            ("Shop.Example.com.:8443", "Shop.Example.com.", Some("8443")),
            ("under_score", "under_score", None),
            ("127.0.0.1:1", "127.0.0.1", Some("1")),
            ("[::1]", "[::1]", None),
            ("[::1]:", "[::1]", Some("")),
            ("[2001:db8::7]:8080", "[2001:db8::7]", Some("8080")),
            ("[::ffff:10.0.0.1]", "[::ffff:10.0.0.1]", None),
        ] {
            assert_eq!(split_host(text.as_bytes()), Some((host, port)), "{text}");
        }
        for invalid in [
            "",
            "a:x",
            "a:-1",
            "a:+1",
            "a:80,x",
            "a:80 ",
            " a",
            "a b",
            "a:80:80",
            "a:65536",
            ":80",
            ":",
            "::1",
            "a/b",
            "a?b",
            "a#b",
            "x@y",
            "a%41",
            "a..b",
            "a..",
            "[::1",
            "[::1]x",
            "[::1]80",
            "[]",
            "[a]",
            "[::1%25eth0]",
            "a]",
            "[::1]:x",
            "caf\u{e9}",
            "a\\b",
            "a\t",
            "a,b:80,c",
        ] {
            assert_eq!(split_host(invalid.as_bytes()), None, "{invalid}");
        }
        assert_eq!(split_host(b"\xff"), None);
        let long = |length: usize| "a".repeat(length) + ":65535";
        assert!(split_host(long(255).as_bytes()).is_some());
        assert_eq!(split_host(long(256).as_bytes()), None);
    }

    #[test]
    fn reports_invalid_hosts() {
        let invalid = |text: &str| HostPattern::read(text).unwrap_err().0;
        assert_eq!(invalid("http://a.com"), "invalid host `http://a.com`");
        assert_eq!(invalid("a.com:8080"), "invalid host `a.com:8080`: hosts are compared without a port");
        assert_eq!(invalid(""), "invalid host ``");
        assert_eq!(invalid("a..b"), "invalid host `a..b`");
    }
}
