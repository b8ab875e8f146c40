//! The heads of requests and answers on their way through: what a client may send at all, what ends at the gateway, and what it
//! adds.
//!
//! # What always holds
//! - A request that reaches an upstream has one host and one length.
//! - What concerns one connection (`Connection` and what it names, `Keep-Alive`, `Transfer-Encoding`, `Upgrade`, `TE` but for
//!   trailers) goes no further, in both directions.
//! - What a client says about who it is (`X-Forwarded-*`, `Forwarded`) goes on only if it comes from a trusted proxy.

use super::facts::{Facts, Trust};
use diana_http::has_dot_segments;
use diana_rules::Upstream;
use http::header::{
    CONNECTION, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, StatusCode, Uri, Version};
use smallvec::SmallVec;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// What a trusted proxy may say besides; from anybody else it ends here.
const X_FORWARDED_PORT: HeaderName = HeaderName::from_static("x-forwarded-port");
const X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// A request that goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

/// Whether a client may ask this at all.
pub(super) fn check(head: &Parts) -> Result<(), Rejected> {
    let bad = |why| Err(Rejected { status: StatusCode::BAD_REQUEST, why });
    if head.method == Method::CONNECT {
        return Err(Rejected { status: StatusCode::METHOD_NOT_ALLOWED, why: "this is no proxy to other places" });
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return bad("only OPTIONS can ask for `*`");
    }
    if has_dot_segments(head.uri.path()) {
        return bad("the path has `.` or `..` in it");
    }
    if head.uri.scheme_str().is_some_and(|scheme| scheme != "http" && scheme != "https") {
        return bad("the address is neither http nor https");
    }
    let host = head.headers.get(HOST);
    // Only if some header is there twice it may be this one.
    if head.headers.len() > head.headers.keys_len() && head.headers.get_all(HOST).iter().nth(1).is_some() {
        return bad("there is more than one Host");
    }
    match (host, head.uri.authority()) {
        (Some(host), _) if !is_host(host) => bad("the Host is no host"),
        (_, Some(authority)) if authority.as_str().contains('@') => bad("the address has a user in it"),
        // Only HTTP/1.0 knows requests without one.
        (None, None) if head.version > Version::HTTP_10 => bad("there is no Host"),
        _ => Ok(()),
    }
}

fn is_host(host: &HeaderValue) -> bool {
    // A name or an address, and perhaps a port: what almost all are needs no second look.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let bytes = host.as_bytes();
    let (name, port) = bytes.split_at(bytes.iter().position(|byte| *byte == b':').unwrap_or(bytes.len()));
    let is_port = port.is_empty() || ((2..=6).contains(&port.len()) && port[1..].iter().all(u8::is_ascii_digit));
    // An empty one is what a client sends that knows no host.
    (is_port && name.iter().all(is_plain))
        || Authority::try_from(host.as_bytes()).is_ok_and(|host| !host.as_str().contains('@'))
}

/// What a client wants its connection to become.
pub(super) fn upgrade(head: &Parts) -> Option<HeaderValue> {
    if head.version != Version::HTTP_11 {
        return None;
    }
    let asks = head.headers.get(UPGRADE)?;
    // Another HTTP, or TLS, in the middle of HTTP/1 would be a way past the rules for all that follows.
    let is_http = |word: &str| {
        let word = word.trim().to_ascii_lowercase();
        word.starts_with("h2") || word.starts_with("h3") || word.starts_with("http") || word.starts_with("tls")
    };
    let leads_past = asks.to_str().map_or(true, |words| words.split(',').any(is_http));
    let is_alone = head.headers.get_all(UPGRADE).iter().nth(1).is_none();
    (!leads_past && is_alone && names(&head.headers, CONNECTION, "upgrade")).then(|| asks.clone())
}

/// Whether a list of words has this one.
fn names(headers: &HeaderMap, list: HeaderName, word: &str) -> bool {
    let values = headers.get_all(list).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|named| named.trim().eq_ignore_ascii_case(word))
}

/// Which headers a head has that the gateway changes. Almost every head has almost none, and one look at the names costs less
/// than asking for each.
#[derive(Clone, Copy, Debug, Default)]
struct Has {
    connection: bool,
    keep_alive: bool,
    proxy_connection: bool,
    transfer_encoding: bool,
    upgrade: bool,
    te: bool,
    expect: bool,
    /// What only a trusted proxy may say, besides what is replaced anyway.
    said_by_proxy: bool,
    /// A name with `_`. Many services take that for `-`, and so one header for another.
    underscore: bool,
}

impl Has {
    fn of(headers: &HeaderMap) -> Self {
        let mut has = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "connection" => has.connection = true,
                "keep-alive" => has.keep_alive = true,
                "proxy-connection" => has.proxy_connection = true,
                "transfer-encoding" => has.transfer_encoding = true,
                "upgrade" => has.upgrade = true,
                "te" => has.te = true,
                "expect" => has.expect = true,
                "x-forwarded-port" | "x-real-ip" => has.said_by_proxy = true,
                name => has.underscore |= name.as_bytes().contains(&b'_'),
            }
        }
        has
    }
}

/// Takes away what concerns this connection only.
fn end_here(headers: &mut HeaderMap, has: Has) {
    if has.connection {
        end_named(headers);
    }
    for (is_there, name) in [
        (has.keep_alive, KEEP_ALIVE),
        (has.proxy_connection, PROXY_CONNECTION),
        (has.transfer_encoding, TRANSFER_ENCODING),
        (has.upgrade, UPGRADE),
    ] {
        if is_there {
            headers.remove(name);
        }
    }
}

/// Takes away `Connection`, and what it names.
fn end_named(headers: &mut HeaderMap) {
    // Mostly there is one, and it is `close` or `keep-alive`; hardly ever a list of other headers, or several of them.
    let is_plain = |list: &HeaderValue| {
        list.as_bytes().eq_ignore_ascii_case(b"close") || list.as_bytes().eq_ignore_ascii_case(b"keep-alive")
    };
    let lists: SmallVec<[HeaderValue; 1]> =
        headers.get_all(CONNECTION).into_iter().filter(|list| !is_plain(list)).cloned().collect();
    headers.remove(CONNECTION);
    for list in &lists {
        let names = list.to_str().unwrap_or_default().split(',');
        for name in names.filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok()) {
            // A client must not make its request one for no host.
            if name != HOST && name != http::header::CONTENT_LENGTH {
                headers.remove(name);
            }
        }
    }
}

/// Makes the head what an upstream gets.
pub(super) fn to_upstream(head: &mut Parts, facts: &Facts, upgrade: Option<HeaderValue>) {
    let has = Has::of(&head.headers);
    let has_trailers = has.te && names(&head.headers, TE, "trailers");
    end_here(&mut head.headers, has);
    if has.te {
        head.headers.remove(TE);
    }
    if has_trailers {
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if has.upgrade {
        head.headers.remove(HTTP2_SETTINGS);
    }
    if has.expect {
        // The gateway tells the client to go on, as soon as the upstream wants the body.
        head.headers.remove(EXPECT);
    }
    if let Some(upgrade) = upgrade {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, upgrade);
    }
    // What an absolute address says counts, whatever `Host` says.
    if let Some(authority) = head.uri.authority() {
        if let Ok(host) = HeaderValue::from_str(authority.as_str()) {
            head.headers.insert(HOST, host);
        }
        head.uri = origin(&head.uri);
    }
    forwarded(&mut head.headers, facts, has);
    if head.version == Version::HTTP_2 {
        join_cookies(&mut head.headers);
    }
    head.version = Version::HTTP_11;
}

/// HTTP/2 may send cookies in several headers, which compress better; HTTP/1 has them in one.
fn join_cookies(headers: &mut HeaderMap) {
    let mut pieces = headers.get_all(COOKIE).iter();
    if let (Some(first), Some(second)) = (pieces.next(), pieces.next()) {
        let all: Vec<&[u8]> = [first, second].into_iter().chain(pieces).map(HeaderValue::as_bytes).collect();
        if let Ok(all) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            headers.insert(COOKIE, all);
        }
    }
}

/// The path and the query alone.
fn origin(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

fn forwarded(headers: &mut HeaderMap, facts: &Facts, has: Has) {
    let host = headers.get(HOST).cloned();
    match facts.trust {
        Trust::Nobody => {
            headers.insert(X_FORWARDED_FOR, facts.forwarded_for.clone());
            headers.insert(FORWARDED, facts.forwarded.clone());
            headers.insert(X_FORWARDED_PROTO, facts.proto.clone());
            if let Some(host) = host {
                headers.insert(X_FORWARDED_HOST, host);
            }
            if has.underscore {
                end_underscores(headers);
            }
            if has.said_by_proxy {
                headers.remove(X_FORWARDED_PORT);
                headers.remove(X_REAL_IP);
            }
        }
        Trust::Trusted => {
            append(headers, X_FORWARDED_FOR, &facts.forwarded_for);
            append(headers, FORWARDED, &facts.forwarded);
            if !headers.contains_key(X_FORWARDED_PROTO) {
                headers.insert(X_FORWARDED_PROTO, facts.proto.clone());
            }
            if let Some(host) = host.filter(|_| !headers.contains_key(X_FORWARDED_HOST)) {
                headers.insert(X_FORWARDED_HOST, host);
            }
        }
    }
}

/// Takes away headers with `_` in their names, as nginx does.
fn end_underscores(headers: &mut HeaderMap) {
    let names: Vec<_> = headers.keys().filter(|name| name.as_str().contains('_')).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// Adds a hop to the end of a list.
fn append(headers: &mut HeaderMap, list: HeaderName, hop: &HeaderValue) {
    let before = headers.get_all(&list).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b", "[..]);
    if before.is_empty() {
        headers.insert(list, hop.clone());
        return;
    }
    let all = [&before, &b", "[..], hop.as_bytes()].concat();
    headers.insert(list, HeaderValue::from_bytes(&all).unwrap_or_else(|_| hop.clone()));
}

/// Makes the head what a client gets.
pub(super) fn to_client(headers: &mut HeaderMap, upgrade: Option<HeaderValue>) {
    end_here(headers, Has::of(headers));
    if let Some(upgrade) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, upgrade);
    }
}

/// The same request as HTTP/1 writes it: the host is a header of its own, and there must be one.
pub(super) fn for_http1<B>(request: &mut Request<B>, upstream: &Upstream) {
    if let Some(authority) = request.uri().authority() {
        let host = HeaderValue::from_str(authority.as_str());
        let uri = origin(request.uri());
        if let Ok(host) = host {
            request.headers_mut().insert(HOST, host);
        }
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
    }
    if !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::try_from(upstream.authority())
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// The same request as HTTP/2 writes it: the host is part of the address.
pub(super) fn for_http2<B>(request: &mut Request<B>, upstream: &Upstream) {
    let host = request.headers_mut().remove(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let own = || Authority::try_from(upstream.authority()).ok();
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    let is_tls = upstream.scheme == diana_rules::Scheme::Https;
    uri.scheme = Some(if is_tls { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
    uri.authority = uri.authority.or(host).or_else(own);
    uri.path_and_query.get_or_insert_with(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from_parts(uri).unwrap_or_default();
    *request.version_mut() = Version::HTTP_2;
    request.headers_mut().remove(CONNECTION);
    request.headers_mut().remove(UPGRADE);
}

#[cfg(test)]
mod tests;
