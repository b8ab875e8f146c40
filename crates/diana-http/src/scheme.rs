//! The scheme by which the client sent a request: `http` or `https`.
//!
//! # What always holds (tests/it/scheme.rs)
//! - The target of a request and HTTP/2's `:scheme`, which a client chooses, do not decide.
//! - `X-Forwarded-Proto` is only read if the front end allows it, and only when a rule reads the scheme.

use diana::rules::attributes::SEVERAL;
use http::header::{HeaderMap, HeaderName};

/// The header in which a proxy names the scheme of its client's request.
pub const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The scheme of a request, as far as its front end knows it; by default it is unknown.
///
/// ```
/// use diana::rules::{Attribute, Attributes};
/// use diana_http::{HttpAttributes, RequestScheme};
/// use http::Request;
///
/// let request = Request::get("/").header("x-forwarded-proto", "https").body(())?;
/// let by = |scheme| HttpAttributes::of(&request, None).with_scheme(scheme).get(&Attribute::Scheme).map(String::from);
/// assert_eq!(by(RequestScheme::default()), None);
/// assert_eq!(by(RequestScheme::of("http")).as_deref(), Some("http"));
/// assert_eq!(by(RequestScheme::of("http").or_forwarded()).as_deref(), Some("https"));
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestScheme {
    transport: TransportScheme,
    reads_forwarded: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TransportScheme {
    #[default]
    Unknown,
    Http,
    Https,
    Several,
}

impl RequestScheme {
    /// Creates the scheme with this name; see [`normal_scheme`].
    pub fn of(name: &str) -> Self {
        let transport = match normal_scheme(name) {
            HTTP => TransportScheme::Http,
            HTTPS => TransportScheme::Https,
            _ => TransportScheme::Several,
        };
        Self { transport, reads_forwarded: false }
    }

    /// Returns a scheme that is the one in `X-Forwarded-Proto` if the request has that header: for a request from a trusted
    /// proxy.
    #[must_use]
    pub fn or_forwarded(self) -> Self {
        Self { reads_forwarded: true, ..self }
    }

    /// Returns its value for a request with these headers.
    pub(crate) fn value(self, headers: &HeaderMap) -> Option<&'static str> {
        if self.reads_forwarded {
            let mut values = headers.get_all(X_FORWARDED_PROTO).into_iter();
            if let Some(value) = values.next() {
                let is_repeated = values.next().is_some();
                return Some(if is_repeated { SEVERAL } else { normal_scheme(value.to_str().unwrap_or_default()) });
            }
        }
        match self.transport {
            TransportScheme::Unknown => None,
            TransportScheme::Http => Some(HTTP),
            TransportScheme::Https => Some(HTTPS),
            TransportScheme::Several => Some(SEVERAL),
        }
    }
}

const HTTP: &str = "http";
const HTTPS: &str = "https";

/// Returns a scheme as rules compare it: `http` or `https`, in lower case. A WebSocket begins as a request of HTTP, so `ws` and
/// `wss` are those too. Anything else, such as a list, is ambiguous: [`SEVERAL`].
///
/// ```
/// use diana_http::normal_scheme;
///
/// assert_eq!(["HTTP", "https", "wss", "https, http"].map(normal_scheme), ["http", "https", "https", "(several)"]);
/// ```
pub fn normal_scheme(name: &str) -> &'static str {
    let is = |known: &[&str]| known.iter().any(|known| known.eq_ignore_ascii_case(name.trim_ascii()));
    if is(&[HTTP, "ws"]) {
        HTTP
    } else if is(&[HTTPS, "wss"]) {
        HTTPS
    } else {
        SEVERAL
    }
}
