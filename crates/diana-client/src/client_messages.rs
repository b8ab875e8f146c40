//! Requests and responses of HTTP clients, as the client layers need them.
//!
//! The layers are generic over `http::Request` and (feature `reqwest`) reqwest's own; a client with other types
//! implements these two traits.

use http::header::HOST;
use http::{HeaderMap, Request, Response, StatusCode};

/// A request of an HTTP client.
pub trait RequestHost {
    /// Returns its target: the host in lower case, and the port unless it is the scheme's default. `None` if it has no
    /// host.
    ///
    /// [`RetryAfterLayer`](crate::RetryAfterLayer) uses it, and it can be a key for
    /// [`ClientRateLimitLayer::keyed`](crate::ClientRateLimitLayer::keyed):
    ///
    /// ```
    /// use diana::{KeyedLimiter, Quota};
    /// use diana_client::{RequestHost, ClientRateLimitLayer};
    /// use http::Request;
    ///
    /// assert_eq!(Request::get("https://Example.com:443/a").body(())?.host().as_deref(), Some("example.com"));
    /// assert_eq!(Request::get("http://me:secret@example.com:8080/").body(())?.host().as_deref(), Some("example.com:8080"));
    ///
    /// let each_host = KeyedLimiter::new("10/s".parse::<Quota>()?);
    /// let layer = ClientRateLimitLayer::keyed("each-host", each_host, <Request<()> as RequestHost>::host);
    /// # drop(layer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn host(&self) -> Option<String>;
}

/// A response for an HTTP client.
pub trait ResponseMeta {
    /// Returns its status, which shows whether the request was denied.
    fn status(&self) -> StatusCode;

    /// Returns its headers, which may have the retry time.
    fn headers(&self) -> &HeaderMap;

    /// Returns the host that sent the response, in the form of [`RequestHost::host`], if the client knows it: after a
    /// redirect it differs from the requested one.
    fn final_host(&self) -> Option<String> {
        None
    }
}

impl<B> RequestHost for Request<B> {
    fn host(&self) -> Option<String> {
        let uri = self.uri();
        if let Some(host) = uri.host() {
            return Some(host_name(uri.scheme_str(), host, uri.port_u16()));
        }
        self.headers().get(HOST).and_then(|host| host.to_str().ok()).map(str::to_ascii_lowercase)
    }
}

impl<B> ResponseMeta for Response<B> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

/// Returns one name for each host, for all spellings of its address. It has no credentials, since errors show it.
pub(crate) fn host_name(scheme: Option<&str>, host: &str, port: Option<u16>) -> String {
    let default_port = match scheme {
        Some("http") => Some(80),
        Some("https") => Some(443),
        _ => None,
    };
    let host = host.to_ascii_lowercase();
    match port {
        Some(port) if Some(port) != default_port => format!("{host}:{port}"),
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(uri: &str) -> Option<String> {
        Request::get(uri).body(()).unwrap().host()
    }

    #[test]
    fn normalizes_the_host_name() {
        for uri in ["http://a.example/x", "http://A.Example:80", "https://a.example:443/", "http://me:pass@a.example/"]
        {
            assert_eq!(host(uri).as_deref(), Some("a.example"), "{uri}");
        }
        assert_eq!(host("https://a.example:80/").as_deref(), Some("a.example:80"));
        assert_eq!(host("http://127.0.0.1:8080/").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(host("http://[::1]:8080/").as_deref(), Some("[::1]:8080"));
    }

    #[test]
    fn uses_the_host_header_without_an_absolute_uri() {
        assert_eq!(host("/x"), None);
        let request = Request::get("/x").header("host", "A.example:81").body(()).unwrap();
        assert_eq!(request.host().as_deref(), Some("a.example:81"));
        let both = Request::get("http://b.example/x").header("host", "a.example").body(()).unwrap();
        assert_eq!(both.host().as_deref(), Some("b.example"));
    }
}
