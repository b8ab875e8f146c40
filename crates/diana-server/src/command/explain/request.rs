//! The parts of a request on the command line, in curl's syntax.

use diana::parse_duration;
use std::time::Duration;

/// The target of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The scheme and the host, if the target is a whole URL.
    pub(super) origin: Option<(&'static str, String)>,
    /// The path with the query.
    pub(super) path: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

/// A named attribute that an application would provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) value: String,
}

pub(super) fn target(text: &str) -> Result<Target, String> {
    // A fragment is never sent.
    let text = text.split('#').next().unwrap_or_default();
    if text.starts_with('/') {
        return Ok(Target { origin: None, path: text.to_owned() });
    }
    let rest = |scheme| Some((scheme, text.strip_prefix(scheme)?.strip_prefix("://")?));
    let (scheme, rest) = ["http", "https"]
        .into_iter()
        .find_map(rest)
        .ok_or("expected a path such as `/login?x=1`, or a URL with `http://` or `https://`")?;
    let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if host.is_empty() || host.contains('@') {
        return Err("expected a host after `//`, as in `http://api.example.com/login`".to_owned());
    }
    let slash = if path.starts_with('/') { "" } else { "/" };
    Ok(Target { origin: Some((scheme, host.to_owned())), path: format!("{slash}{path}") })
}

pub(super) fn method(text: &str) -> Result<String, String> {
    match is_token(text) {
        true => Ok(text.to_owned()),
        false => Err("expected one word, such as `POST`".to_owned()),
    }
}

pub(super) fn header(text: &str) -> Result<Header, String> {
    let invalid = "expected `name: value`, such as `x-account-id: alice`";
    let (name, value) = text.split_once(':').ok_or(invalid)?;
    if !is_token(name) {
        return Err(invalid.to_owned());
    }
    Ok(Header { name: name.to_owned(), value: value.trim().to_owned() })
}

pub(super) fn name(text: &str) -> Result<Name, String> {
    match text.split_once('=') {
        Some((name, value)) if is_token(name) => Ok(Name { name: name.to_owned(), value: value.to_owned() }),
        _ => Err("expected `name=value`, such as `tenant=acme`".to_owned()),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => parse_duration(text).map_err(|error| error.to_string()),
    }
}

/// Returns whether it is a token of HTTP, as methods and header names are.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_or_a_url() {
        let expected = |scheme, host: &str, path: &str| {
            Ok(Target { origin: Some((scheme, host.to_owned())), path: path.to_owned() })
        };
        assert_eq!(target("/login?x=1#top"), Ok(Target { origin: None, path: "/login?x=1".to_owned() }));
        assert_eq!(target("https://api.example.com:8443/a?b=/c"), expected("https", "api.example.com:8443", "/a?b=/c"));
        assert_eq!(target("http://api.example.com?q=1"), expected("http", "api.example.com", "/?q=1"));
        assert_eq!(target("http://api.example.com"), expected("http", "api.example.com", "/"));
        for invalid in ["", "login", "ftp://x/", "http://", "http:///x", "http://alice@x/"] {
            assert!(target(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn headers_and_attributes_have_a_name_and_a_value() {
        let parsed = |text| header(text).map(|Header { name, value }| format!("{name}={value}"));
        assert_eq!(parsed("X-Plan:  free "), Ok("X-Plan=free".to_owned()));
        assert_eq!(parsed("x-empty:"), Ok("x-empty=".to_owned()));
        assert_eq!(parsed("a: b: c"), Ok("a=b: c".to_owned()));
        assert!(["x-plan", ": free", "x plan: free", ""].iter().all(|invalid| header(invalid).is_err()));
        assert_eq!(name("tenant=a=b"), Ok(Name { name: "tenant".to_owned(), value: "a=b".to_owned() }));
        assert!(["tenant", "=x", "a b=c"].iter().all(|invalid| name(invalid).is_err()));
        assert!(method("POST").is_ok() && method("").is_err() && method("GET /").is_err());
    }

    #[test]
    fn a_time_may_be_zero() {
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        assert_eq!(time("200ms"), Ok(Duration::from_millis(200)));
        assert!(time("soon").is_err());
    }
}
