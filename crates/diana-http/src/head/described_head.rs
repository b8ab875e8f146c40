//! A request that the client of a service describes by its parts, checked and read as the gateway does: for Envoy's
//! descriptors and for `DIANA.CHECK`.

use super::{HeadPolicy, RejectedRequest, check};
use crate::{HttpAttributes, normal_method};
use http::header::{COOKIE, HOST, HeaderValue};
use http::request::Parts;
use http::{Method, Request, StatusCode, Uri, Version};
use std::borrow::Cow;
use std::fmt::Write;

/// A client's description of a request's head.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadDescription<'a> {
    /// The path, maybe with a query, or with a scheme and a host.
    pub path: &'a str,
    /// The method; `GET` by default.
    pub method: Option<&'a str>,
    /// The host, maybe with a port.
    pub host: Option<&'a str>,
    /// The value of the `Cookie` header.
    pub cookies: Option<&'a str>,
}

/// The head of a described request. It is valid: the gateway would evaluate the rules for it.
///
/// ```
/// use diana::rules::http_settings::SpellingPolicy;
/// use diana::rules::{Attribute, Attributes};
/// use diana_http::head::{DescribedHead, HeadDescription, HeadPolicy};
///
/// let policy = HeadPolicy::new(SpellingPolicy::Deny, SpellingPolicy::Allow);
/// let read = |path| DescribedHead::read(&HeadDescription { path, ..HeadDescription::default() }, &policy);
/// let head = read("/%6Cogin;v=1?x=<1>")?.unwrap();
/// assert_eq!(head.attributes().get(&Attribute::Path).as_deref(), Some("/login"));
/// assert_eq!(head.attributes().get(&Attribute::Query("x".into())).as_deref(), Some("<1>"));
///
/// assert_eq!(read("/login\n").unwrap_err().detail, "the path contains an escaped control character");
/// assert!(read("orders")?.is_none(), "a name that is no path");
/// # Ok::<(), diana_http::head::RejectedRequest>(())
/// ```
#[derive(Clone, Debug)]
pub struct DescribedHead(Box<Parts>);

impl DescribedHead {
    /// Reads the head of a request; `None` if `path` is not a path of HTTP, but the name of something else.
    ///
    /// # Errors
    /// The gateway would reject the request before it evaluates any rule.
    pub fn read(description: &HeadDescription<'_>, policy: &HeadPolicy) -> Result<Option<Self>, RejectedRequest> {
        let HeadDescription { path, method, host, cookies } = *description;
        if !is_http(path) {
            return Ok(None);
        }
        let invalid = |detail| RejectedRequest { status: StatusCode::BAD_REQUEST, detail };
        let (mut head, ()) = Request::new(()).into_parts();
        head.uri = Uri::try_from(&*escaped(path)).map_err(|_| invalid("the path is invalid or too long"))?;
        // HTTP/1.0 requires no `Host`.
        head.version = Version::HTTP_10;
        if let Some(method) = method {
            // Many programs write methods in lower case. Rules match both.
            head.method =
                Method::from_bytes(normal_method(method).as_bytes()).map_err(|_| invalid("invalid method"))?;
        }
        for (name, value) in [(HOST, host), (COOKIE, cookies)] {
            if let Some(value) = value {
                let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid("invalid header"))?;
                head.headers.insert(name, value);
            }
        }
        check(&head, policy)?;
        Ok(Some(Self(Box::new(head))))
    }

    /// Returns the attributes of the request. The forms of the path are computed once, at their first use.
    pub fn attributes(&self) -> HttpAttributes<'_> {
        HttpAttributes::of_head(&self.0, None)
    }
}

/// Returns `true` if a text is a path of HTTP, or a URI.
fn is_http(path: &str) -> bool {
    let has_scheme =
        |(scheme, _): (&str, _)| scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    path.starts_with('/') || path == "*" || path.split_once("://").is_some_and(has_scheme)
}

/// Escapes what a URI can't contain. Envoy accepts some of it, and programs often know a path only after it was decoded.
fn escaped(path: &str) -> Cow<'_, str> {
    let is_valid = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'`');
    if path.bytes().all(is_valid) {
        return Cow::Borrowed(path);
    }
    let mut text = String::with_capacity(path.len() + 16);
    for byte in path.bytes() {
        if is_valid(byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    Cow::Owned(text)
}
