//! The head of a request as sent to an upstream. The client's head is not changed, so that the request can be retried
//! on another upstream.

use super::list_contains;
use diana_http::X_FORWARDED_PROTO;
use diana_http::find_header;
use diana_http::head::is_hop_by_hop;
use diana_net::{ConnInfo, ForwardedHeaders, PeerTrust};
use diana_rules::upstream_url::{Scheme, Upstream};
use http::header::{CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri, Version};
use std::borrow::Cow;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The head of a request as sent to an upstream.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamRequest<'a> {
    /// The client's head, without the headers that its `Connection` names.
    pub(crate) head: &'a Parts,
    /// The client's connection.
    pub(crate) conn_info: &'a ConnInfo,
    /// The protocol of a requested upgrade.
    pub(crate) upgrade: Option<&'a HeaderValue>,
}

/// Receives the headers of a request.
pub(crate) trait HeaderSink {
    fn field(&mut self, name: &HeaderName, value: &[u8]);

    /// Adds the forwarding headers of an untrusted peer: its address and scheme.
    fn forwarded(&mut self, forwarded: &ForwardedHeaders) {
        self.field(&X_FORWARDED_FOR, forwarded.forwarded_for.as_bytes());
        self.field(&FORWARDED, forwarded.forwarded.as_bytes());
        self.field(&X_FORWARDED_PROTO, forwarded.proto.as_bytes());
    }
}

impl HeaderSink for HeaderMap {
    fn field(&mut self, name: &HeaderName, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.append(name, value);
        }
    }
}

/// The treatment of a client's header.
enum HeaderHandling {
    Forward,
    Remove,
    /// Written by the code that frames the body.
    Length,
    /// Rewritten for the upstream.
    Cookie,
    Te,
    /// Forwarded only from a trusted proxy.
    TrustedOnly,
}

impl HeaderHandling {
    fn of(name: &HeaderName, trust: PeerTrust) -> Self {
        match name.as_str() {
            // Written first, or by the code that frames the message.
            "host" => Self::Remove,
            "content-length" => Self::Length,
            "cookie" => Self::Cookie,
            "te" => Self::Te,
            // The gateway itself sends `100 Continue`, once the upstream reads the body.
            "expect" => Self::Remove,
            // The peer is appended to these lists.
            "x-forwarded-for" | "forwarded" => Self::Remove,
            "x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-port" | "x-real-ip" => Self::TrustedOnly,
            _ if is_hop_by_hop(name) => Self::Remove,
            // Many services treat `_` as `-`, and so confuse two headers. nginx drops them, too.
            name if trust == PeerTrust::Untrusted && name.as_bytes().contains(&b'_') => Self::Remove,
            _ => Self::Forward,
        }
    }
}

/// Returns `true` if a header is forwarded unchanged.
pub(crate) fn is_forwarded(name: &HeaderName, trust: PeerTrust) -> bool {
    matches!(HeaderHandling::of(name, trust), HeaderHandling::Forward)
}

impl UpstreamRequest<'_> {
    /// Returns the request target for the upstream.
    pub(crate) fn target(&self) -> Cow<'_, str> {
        match self.head.uri.path_and_query().map(PathAndQuery::as_str) {
            None | Some("") => Cow::Borrowed("/"),
            // An absolute URI may have a query and no path.
            Some(query) if query.starts_with('?') => Cow::Owned(format!("/{query}")),
            Some(target) => Cow::Borrowed(target),
        }
    }

    /// Returns the host of the request. The authority of an absolute URI takes precedence over `Host`.
    fn host(&self) -> Option<&[u8]> {
        let authority = self.head.uri.authority().map(|authority| authority.as_str().as_bytes());
        authority.or_else(|| find_header(&self.head.headers, &HOST).map(HeaderValue::as_bytes))
    }

    /// Writes every header that an upstream gets, `Host` first, except those that frame the body. For an HTTP/1.0
    /// request without a host, `upstream_host` is used. Returns the client's `Content-Length`.
    pub(crate) fn write_headers(&self, upstream_host: &[u8], sink: &mut impl HeaderSink) -> Option<&HeaderValue> {
        let Self { head, conn_info, upgrade } = self;
        let host = self.host();
        sink.field(&HOST, host.unwrap_or(upstream_host));
        let mut written = Written::default();
        let (mut has_cookie, mut length) = (false, None);
        for (name, value) in &head.headers {
            match HeaderHandling::of(name, conn_info.trust) {
                HeaderHandling::Forward => sink.field(name, value.as_bytes()),
                HeaderHandling::Cookie if head.version != Version::HTTP_2 => sink.field(name, value.as_bytes()),
                // HTTP/2 may split cookies into several headers, which compress better; HTTP/1 requires one.
                HeaderHandling::Cookie if !has_cookie => {
                    has_cookie = true;
                    sink.field(&COOKIE, &joined(&head.headers, &COOKIE, b"; "));
                }
                HeaderHandling::TrustedOnly if conn_info.trust == PeerTrust::Trusted => {
                    written.record(name);
                    sink.field(name, value.as_bytes());
                }
                HeaderHandling::Te if !written.te && list_contains(&head.headers, TE, "trailers") => {
                    written.te = true;
                    sink.field(&TE, b"trailers");
                }
                HeaderHandling::Length => length = Some(value),
                HeaderHandling::Remove | HeaderHandling::Cookie | HeaderHandling::TrustedOnly | HeaderHandling::Te => {}
            }
        }
        self.write_forwarded(host, written, sink);
        if let Some(upgrade) = upgrade {
            sink.field(&http::header::CONNECTION, b"upgrade");
            sink.field(&http::header::UPGRADE, upgrade.as_bytes());
        }
        length
    }

    /// Writes the forwarding headers.
    fn write_forwarded(&self, host: Option<&[u8]>, written: Written, sink: &mut impl HeaderSink) {
        let (headers, forwarded) = (&self.head.headers, self.conn_info.forwarded());
        if self.conn_info.trust == PeerTrust::Untrusted {
            sink.forwarded(forwarded);
        } else {
            for (list, peer) in [(&X_FORWARDED_FOR, &forwarded.forwarded_for), (&FORWARDED, &forwarded.forwarded)] {
                let before = joined(headers, list, b", ");
                if before.is_empty() {
                    sink.field(list, peer.as_bytes());
                } else {
                    sink.field(list, &[&before, &b", "[..], peer.as_bytes()].concat());
                }
            }
            if !written.proto {
                sink.field(&X_FORWARDED_PROTO, forwarded.proto.as_bytes());
            }
        }
        if let Some(host) = host.filter(|_| !written.host) {
            sink.field(&X_FORWARDED_HOST, host);
        }
    }

    /// Returns the request as HTTP/2: the host is part of the URI.
    pub(crate) fn for_http2<B>(&self, upstream: &Upstream, body: B) -> Request<B> {
        let (mut head, ()) = Request::new(()).into_parts();
        let authority = self.host().and_then(|host| Authority::try_from(host).ok());
        let mut uri = http::uri::Parts::default();
        let is_tls = upstream.scheme == Scheme::Https;
        uri.scheme = Some(if is_tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
        uri.authority = authority.or_else(|| Authority::try_from(upstream.authority()).ok());
        uri.path_and_query = PathAndQuery::try_from(&*self.target()).ok();
        head.uri = Uri::from_parts(uri).unwrap_or_default();
        head.method = self.head.method.clone();
        head.version = Version::HTTP_2;
        head.headers = HeaderMap::with_capacity(self.head.headers.len() + 4);
        let without_upgrade = Self { upgrade: None, ..*self };
        let length = without_upgrade.write_headers(b"", &mut head.headers);
        head.headers.remove(HOST);
        if let Some(length) = length {
            head.headers.insert(CONTENT_LENGTH, length.clone());
        }
        Request::from_parts(head, body)
    }
}

/// The headers that have been written already.
#[derive(Clone, Copy, Default)]
struct Written {
    te: bool,
    proto: bool,
    host: bool,
}

impl Written {
    fn record(&mut self, name: &HeaderName) {
        self.proto |= *name == X_FORWARDED_PROTO;
        self.host |= *name == X_FORWARDED_HOST;
    }
}

/// Joins all values of a header.
fn joined(headers: &HeaderMap, name: &HeaderName, separator: &[u8]) -> Vec<u8> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(separator)
}
