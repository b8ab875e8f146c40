//! The head of a request as sent to an upstream. The client's head is not changed, so that the request can be retried
//! on another upstream.

use super::{ends_here, names};
use crate::connection::{ConnInfo, ForwardedHeaders, PeerTrust};
use diana_rules::upstream::{Scheme, Upstream};
use http::header::{CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Request, Uri, Version};
use std::borrow::Cow;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The head of a request as sent to an upstream.
#[derive(Clone, Copy)]
pub(crate) struct UpstreamRequest<'a> {
    /// The client's head, without the headers that its `Connection` names.
    pub(crate) head: &'a Parts,
    /// The client's connection.
    pub(crate) conn_info: &'a ConnInfo,
    /// The protocol that the client wants to upgrade to.
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

/// How a client's header is handled.
enum HeaderHandling {
    GoesOn,
    Ends,
    /// Written by the code that frames the body.
    Length,
    /// Rewritten for the upstream.
    Cookie,
    Te,
    /// Forwarded only from a trusted proxy.
    Said,
}

impl HeaderHandling {
    fn of(name: &HeaderName, trust: PeerTrust) -> Self {
        match name.as_str() {
            // Written first, or by the code that frames the message.
            "host" => Self::Ends,
            "content-length" => Self::Length,
            "cookie" => Self::Cookie,
            "te" => Self::Te,
            // The gateway itself sends `100 Continue`, once the upstream reads the body.
            "expect" => Self::Ends,
            // The peer is appended to these lists.
            "x-forwarded-for" | "forwarded" => Self::Ends,
            "x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-port" | "x-real-ip" => Self::Said,
            _ if ends_here(name) => Self::Ends,
            // Many services treat `_` as `-`, and so confuse two headers. nginx drops them, too.
            name if trust == PeerTrust::Nobody && name.as_bytes().contains(&b'_') => Self::Ends,
            _ => Self::GoesOn,
        }
    }
}

/// Returns `true` if a header is forwarded unchanged.
pub(crate) fn goes_on(name: &HeaderName, trust: PeerTrust) -> bool {
    matches!(HeaderHandling::of(name, trust), HeaderHandling::GoesOn)
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
        let of_address = self.head.uri.authority().map(|authority| authority.as_str().as_bytes());
        of_address.or_else(|| self.head.headers.get(HOST).map(HeaderValue::as_bytes))
    }

    /// Writes every header that an upstream gets, `Host` first, except those that frame the body. For an HTTP/1.0
    /// request without a host, the upstream's own name is used. Returns the client's `Content-Length`.
    pub(crate) fn tell(&self, own: &[u8], told: &mut impl HeaderSink) -> Option<&HeaderValue> {
        let Self { head, conn_info, upgrade } = self;
        let host = self.host();
        told.field(&HOST, host.unwrap_or(own));
        let mut said = Said::default();
        let (mut has_cookie, mut length) = (false, None);
        for (name, value) in &head.headers {
            match HeaderHandling::of(name, conn_info.trust) {
                HeaderHandling::GoesOn => told.field(name, value.as_bytes()),
                HeaderHandling::Cookie if head.version != Version::HTTP_2 => told.field(name, value.as_bytes()),
                // HTTP/2 may split cookies into several headers, which compress better; HTTP/1 requires one.
                HeaderHandling::Cookie if !has_cookie => {
                    has_cookie = true;
                    told.field(&COOKIE, &joined(&head.headers, &COOKIE, b"; "));
                }
                HeaderHandling::Said if conn_info.trust == PeerTrust::Trusted => {
                    said.note(name);
                    told.field(name, value.as_bytes());
                }
                HeaderHandling::Te if !said.te && names(&head.headers, TE, "trailers") => {
                    said.te = true;
                    told.field(&TE, b"trailers");
                }
                HeaderHandling::Length => length = Some(value),
                HeaderHandling::Ends | HeaderHandling::Cookie | HeaderHandling::Said | HeaderHandling::Te => {}
            }
        }
        self.tell_who(host, said, told);
        if let Some(upgrade) = upgrade {
            told.field(&http::header::CONNECTION, b"upgrade");
            told.field(&http::header::UPGRADE, upgrade.as_bytes());
        }
        length
    }

    /// Writes the forwarding headers.
    fn tell_who(&self, host: Option<&[u8]>, said: Said, told: &mut impl HeaderSink) {
        let (headers, forwarded) = (&self.head.headers, self.conn_info.forwarded());
        if self.conn_info.trust == PeerTrust::Nobody {
            told.forwarded(forwarded);
        } else {
            for (list, own) in [(&X_FORWARDED_FOR, &forwarded.forwarded_for), (&FORWARDED, &forwarded.forwarded)] {
                let before = joined(headers, list, b", ");
                if before.is_empty() {
                    told.field(list, own.as_bytes());
                } else {
                    told.field(list, &[&before, &b", "[..], own.as_bytes()].concat());
                }
            }
            if !said.proto {
                told.field(&X_FORWARDED_PROTO, forwarded.proto.as_bytes());
            }
        }
        if let Some(host) = host.filter(|_| !said.host) {
            told.field(&X_FORWARDED_HOST, host);
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
        let length = without_upgrade.tell(b"", &mut head.headers);
        head.headers.remove(HOST);
        if let Some(length) = length {
            head.headers.insert(CONTENT_LENGTH, length.clone());
        }
        Request::from_parts(head, body)
    }
}

/// The headers that have been written already.
#[derive(Clone, Copy, Default)]
struct Said {
    te: bool,
    proto: bool,
    host: bool,
}

impl Said {
    fn note(&mut self, name: &HeaderName) {
        self.proto |= *name == X_FORWARDED_PROTO;
        self.host |= *name == X_FORWARDED_HOST;
    }
}

/// Joins all values of a header.
fn joined(headers: &HeaderMap, name: &HeaderName, between: &[u8]) -> Vec<u8> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(between)
}
