//! HTTP/2 without TLS: it is detected by its preface, and has the same guarantees as HTTP/1.

use super::http2_interim::with_interim;
use crate::support::frames::{self, ACK, DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, RST_STREAM};
use crate::support::http2::{Service, connect, full, get, request, whole};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{ReceivedRequest, Upstream};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::convert::Infallible;
use tokio::sync::mpsc;

pub(super) fn gateway_to(upstream: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{upstream}', workers: 1}}\n\
         rules: [{{name: each, by: header(x-key), limit: 1/h, status: 429}}]\n"
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn forwards_a_request_as_http1() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let mut sender = connect(diana.port()).await;
    let request = request("POST", "http://shop.example.com/a/b?c=d")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("x-forwarded-for", "6.6.6.6")
        .body(full("hello"))
        .unwrap();
    let response = whole(sender.send_request(request).await.unwrap()).await;
    assert_eq!(response.status(), 200);
    assert!(response.headers().get("connection").is_none());
    let seen = upstream.last();
    assert_eq!(seen.line(), "POST /a/b?c=d HTTP/1.1");
    assert_eq!((seen.header("host"), seen.count("host")), (Some("shop.example.com"), 1));
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    // HTTP/2 may split cookies into several headers, HTTP/1 has one.
    assert_eq!((seen.header("cookie"), seen.count("cookie")), (Some("a=1; b=2"), 1));
    assert_eq!(seen.body, b"hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_connection_are_independent() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let sender = connect(diana.port()).await;
    let mut all = tokio::task::JoinSet::new();
    for n in 0..60 {
        let mut sender = sender.clone();
        all.spawn(async move {
            let key = (n % 10).to_string();
            let request = request("GET", &format!("http://a/{n}")).header("x-key", key).body(full("")).unwrap();
            whole(sender.send_request(request).await.unwrap()).await.status().as_u16()
        });
    }
    let statuses = tokio::time::timeout(LONG, all.join_all()).await.unwrap();
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 10, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 50, "{statuses:?}");
    assert_eq!(upstream.count(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_both_bodies_at_once_with_trailers() {
    let upstream = Service::h2c();
    let diana = gateway_to(&format!("h2c://127.0.0.1:{}", upstream.port()));
    let mut sender = connect(diana.port()).await;
    let (frames, waiting) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
    let waiting =
        futures_util::stream::unfold(waiting, |mut waiting| async move { Some((waiting.recv().await?, waiting)) });
    let request = request("POST", "http://grpc.example.com/pkg.Service/Call")
        .header("te", "trailers")
        .header("content-type", "application/octet-stream")
        .body(BoxBody::new(StreamBody::new(waiting)))
        .unwrap();
    let response = tokio::spawn(async move { sender.send_request(request).await });
    for _ in 0..3 {
        frames.send(Ok(Frame::data(Bytes::from_static(b"hello ")))).await.unwrap();
    }
    let digest = HeaderMap::from_iter([(http::HeaderName::from_static("x-digest"), HeaderValue::from_static("abc"))]);
    frames.send(Ok(Frame::trailers(digest))).await.unwrap();
    drop(frames);
    let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap().unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().and_then(|trailers| trailers.get("x-sum")).unwrap(), "42");
    assert_eq!(body.to_bytes(), "hello hello hello ");
    let seen = upstream.last();
    assert_eq!((seen.version, &*seen.host), (http::Version::HTTP_2, "grpc.example.com"));
    assert_eq!(seen.trailers.unwrap()["x-digest"], "abc");
    assert_eq!(seen.headers["te"], "trailers");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_http2_upstream_serves_http1_clients() {
    let upstream = Service::h2c();
    let diana = gateway_to(&format!("h2c://127.0.0.1:{}", upstream.port()));
    let port = diana.port();
    let responses = tokio::task::spawn_blocking(move || {
        let mut client = crate::support::client::Client::connect(port);
        let request = "POST /x?y HTTP/1.1\r\nhost: shop.example.com\r\nte: trailers\r\nconnection: te, x-gone\r\nx-gone: 1\r\ncontent-length: 5\r\n\r\nhello";
        (0..3).map(|_| client.send(request).response()).collect::<Vec<_>>()
    });
    for response in responses.await.unwrap() {
        assert_eq!((response.status, response.text().as_str()), (200, "hello"));
        assert_eq!(response.trailer("x-sum"), Some("42"));
    }
    let seen = upstream.last();
    assert_eq!((&*seen.host, &*seen.target), ("shop.example.com", "/x?y"));
    for name in ["host", "connection", "transfer-encoding", "x-gone"] {
        assert!(!seen.headers.contains_key(name), "{name}");
    }
    assert_eq!(seen.body, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_heads_over_the_limit() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let mut sender = connect(diana.port()).await;
    let mut many = request("GET", "http://a/many");
    for n in 0..200 {
        many = many.header(format!("x-{n}"), "1");
    }
    let response = sender.send_request(many.body(full("")).unwrap()).await;
    assert!(response.as_ref().map_or(true, |response| response.status() == 431), "{response:?}");
    let mut sender = connect(diana.port()).await;
    let long = request("GET", "http://a/long").header("x-long", "y".repeat(40 << 10)).body(full("")).unwrap();
    let response = sender.send_request(long).await;
    assert!(response.as_ref().map_or(true, |response| response.status() == 431), "{response:?}");
    let mut sender = connect(diana.port()).await;
    assert_eq!(get(&mut sender, "http://a/well").await.status(), 200);
    assert_eq!(upstream.received().iter().map(|seen| seen.target().to_owned()).collect::<Vec<_>>(), ["/well"]);
}

#[test]
fn invalid_requests_do_not_reach_the_upstream() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let well = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/bad")];
    let mut bad: Vec<Vec<(&str, &str)>> = Vec::new();
    for extra in [
        ("Upper", "case"),
        ("connection", "x"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
        ("x-nl", "a\r\nGET /smuggled HTTP/1.1"),
        ("x-nl", "a\nb: c"),
        ("x-nul", "a\0b"),
        ("x y", "z"),
        (":path", "/again"),
        ("content-length", "5"),
    ] {
        bad.push(well.iter().copied().chain([extra]).collect());
    }
    for (index, value) in [
        (3, (":path", "")),
        (3, (":path", "/a b")),
        (3, (":path", "/a\r\nx: y")),
        (3, (":path", "*")),
        (0, (":method", "GE T")),
        (0, (":method", "CONNECT")),
        (2, (":authority", "user@a")),
        (2, (":authority", "a/b")),
        (2, (":authority", "a\r\nb")),
        (1, (":scheme", "ftp")),
    ] {
        let mut fields = well.to_vec();
        fields[index] = value;
        bad.push(fields);
    }
    bad.push(well[..3].to_vec());
    bad.push([&[("x-first", "1")], &well[..]].concat());
    for fields in bad {
        let mut client = Frames::connect(diana.port(), &[]);
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&fields)).unwrap();
        // An error response, a reset, or the end of the connection.
        loop {
            match client.next() {
                None => break,
                Some(frame) if matches!(frame.kind, HEADERS | RST_STREAM | GOAWAY) => break,
                Some(_) => {}
            }
        }
        assert_eq!(upstream.count(), 0, "{fields:?} was forwarded: {:?}", upstream.received());
    }
}

/// hyper reports a request that its client cancels with `NO_ERROR` as if its body were complete.
#[test]
fn a_cancelled_request_is_incomplete_and_not_an_upstream_failure() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let head = |length: &[(&str, &str)]| {
        let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/cut")];
        frames::block(&[&fields[..], length].concat())
    };
    let no_error = 0_u32.to_be_bytes();
    for (index, length) in [&[("content-length", "100")][..], &[]].into_iter().cycle().take(40).enumerate() {
        let mut client = Frames::connect(diana.port(), &[]);
        let mut all = frames::frame(HEADERS, END_HEADERS, 1, &head(length));
        // With a part of its body, or none; all at once, or the end a little later.
        if index % 4 > 1 {
            all.extend(frames::frame(DATA, 0, 1, b"x"));
        }
        let end = frames::frame(RST_STREAM, 0, 1, &no_error);
        if index % 8 > 3 {
            client.send_raw(&all).unwrap();
            all.clear();
        }
        all.extend(end);
        client.send_raw(&all).unwrap();
        client.send(PING, 0, 0, &[7; 8]).unwrap();
        while client.next_of(PING).unwrap().flags != ACK {}
    }
    assert_eq!(crate::support::client::get(diana.port(), "/whole").status, 200);
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
    let whole: Vec<_> = upstream.received().into_iter().filter(|seen| seen.is_whole).collect();
    assert_eq!(whole.iter().map(ReceivedRequest::target).collect::<Vec<_>>(), ["/whole"], "{whole:?}");
}

/// Such a request is malformed (RFC 9113 §8.2.1). HTTP/1 services ignore the whitespace, so it would be a new key.
#[tokio::test(flavor = "multi_thread")]
async fn rejects_padded_header_values() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let mut sender = connect(diana.port()).await;
    for padded in [" a", "a ", "\ta", "a\t"] {
        let request = request("GET", "http://a/").header("x-key", padded).body(full("")).unwrap();
        let response = whole(sender.send_request(request).await.unwrap()).await;
        assert_eq!(response.status(), 400, "{padded:?}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn normalizes_and_validates_hosts() {
    let diana = Diana::serve("gateway: {listen: $LISTEN}\nrules: [{name: each, by: host, limit: 1/h, status: 429}]\n");
    let mut sender = connect(diana.port()).await;
    let mut status_of = async |uri: &str, host: Option<&str>| {
        let mut request = request("GET", uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        whole(sender.send_request(request.body(full("")).unwrap()).await.unwrap()).await.status().as_u16()
    };
    assert_eq!(status_of("http://shop.example.com/", None).await, 204);
    for uri in ["http://SHOP.example.com/", "http://shop.example.com:8080/", "http://shop.example.com./"] {
        assert_eq!(status_of(uri, None).await, 429, "{uri}");
    }
    for host in ["shop.example.com:x", "shop.example.com:80,x", "shop.example.com:-1"] {
        assert_eq!(status_of("http://shop.example.com/", Some(host)).await, 400, "{host}");
    }
}

/// Regression: curl treated it as a malformed response.
#[tokio::test(flavor = "multi_thread")]
async fn removes_the_length_of_a_204() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\nx-kept: 1\r\n\r\n")?;
        Ok(crate::support::upstream::AfterResponse::KeepAlive)
    });
    let diana = gateway_to(&upstream.url());
    let mut sender = connect(diana.port()).await;
    for _ in 0..2 {
        let response = get(&mut sender, "http://a/").await;
        assert_eq!((response.status().as_u16(), response.headers().get("content-length")), (204, None));
        assert_eq!(response.headers()["x-kept"], "1");
    }
    let response = crate::support::client::get(diana.port(), "/");
    assert_eq!((response.status, response.header("content-length")), (204, None));
}

/// HTTP/1.1 allows trailers only after a chunked body, so a request that announces them is forwarded chunked.
#[test]
fn announced_trailers_reach_an_http1_upstream() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    for (announced, expected) in [(&[("trailer", "x-digest")][..], Some("abc")), (&[], None)] {
        let mut client = Frames::connect(diana.port(), &[]);
        let post =
            [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("content-length", "5")];
        client.send(HEADERS, END_HEADERS, 1, &frames::block(&[&post[..], announced].concat())).unwrap();
        client.send(DATA, 0, 1, b"hello").unwrap();
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&[("x-digest", "abc")])).unwrap();
        assert_eq!(client.next_of(DATA).unwrap().kind, DATA);
        let seen = upstream.last();
        assert_eq!((seen.body.as_slice(), seen.is_whole), (&b"hello"[..], true));
        assert_eq!(crate::support::client::find(&seen.trailers, "x-digest"), expected);
        assert_eq!(seen.header("content-length"), expected.is_none().then_some("5"));
    }
}

/// RFC 9113, section 8.2.1, as for headers: one server treats the whitespace as part of the value, another does not.
#[test]
fn rejects_padded_trailers_for_http1_upstreams() {
    for value in [" abc", "abc\t", " "] {
        let upstream = Upstream::echo();
        let diana = gateway_to(&upstream.url());
        let mut client = Frames::connect(diana.port(), &[]);
        let post =
            [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("trailer", "x-digest")];
        client.send(HEADERS, END_HEADERS, 1, &frames::block(&post)).unwrap();
        client.send(DATA, 0, 1, b"hello").unwrap();
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&[("x-digest", value)])).unwrap();
        let response = client.next_of(DATA).unwrap();
        assert!(String::from_utf8_lossy(&response.payload).contains("the body is invalid"), "{response:?}");
        assert!(upstream.received().iter().all(|seen| !seen.is_whole), "{value:?}");
    }
}

/// The response to HEAD has a length, and no body follows it.
#[tokio::test(flavor = "multi_thread")]
async fn head_is_answered_without_a_body() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let mut sender = connect(diana.port()).await;
    for (key, status) in [("a", 200), ("a", 429)] {
        let request = request("HEAD", "http://a/").header("x-key", key).body(full("")).unwrap();
        let response = whole(sender.send_request(request).await.unwrap()).await;
        assert_eq!((response.status().as_u16(), response.body().len()), (status, 0));
        assert_eq!(response.headers().contains_key("content-length"), status == 200);
        assert!(response.headers().contains_key("date"));
    }
}

/// Reads until the stream ends. Returns its body, and its trailer block if there was one.
fn until_end(client: &mut Frames, stream: u32) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut body = Vec::new();
    loop {
        let frame = client.next().expect("the connection was closed");
        assert_ne!((frame.kind, frame.stream), (RST_STREAM, stream), "reset after {} bytes", body.len());
        let is_end = frame.flags & END_STREAM != 0;
        match frame.kind {
            DATA if frame.stream == stream => body.extend(frame.payload),
            HEADERS if frame.stream == stream && is_end => return (body, Some(frame.payload)),
            _ => continue,
        }
        if is_end {
            return (body, None);
        }
    }
}

/// Regression: the unsent data of a stalled stream counted against the shared queue, and seven such streams filled it.
#[test]
fn unread_responses_do_not_block_other_streams() {
    const WINDOW: usize = 65_535;
    const LARGE: u32 = 50;
    let upstream = Upstream::start(|exchange| match exchange.request.target() {
        "/large" => exchange.respond("200 OK", "", &[b'x'; 300_000]),
        _ => exchange.respond("200 OK", "", b"small"),
    });
    let diana = gateway_to(&upstream.url());
    let mut client = Frames::connect(diana.port(), &[]);
    client.give_window(0, 1 << 30);
    for n in 0..LARGE {
        client.send(HEADERS, END_HEADERS | END_STREAM, 2 * n + 1, &frames::get("/large")).unwrap();
    }
    let mut remaining = LARGE as usize * WINDOW;
    while remaining > 0 {
        remaining -= client.next_of(DATA).unwrap().payload.len();
    }
    let small = 2 * LARGE + 1;
    client.send(HEADERS, END_HEADERS | END_STREAM, small, &frames::get("/small")).unwrap();
    assert_eq!(until_end(&mut client, small).0, b"small");
    // The stalled streams continue.
    client.give_window(1, 300_000);
    assert_eq!(until_end(&mut client, 1).0.len(), 300_000 - WINDOW);
}

/// Regression: neither needs window, but the body was polled for its end only when there was some.
#[test]
fn the_end_of_a_body_and_its_trailers_need_no_window() {
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let upstream = Upstream::start(move |exchange| {
        let chunk = if exchange.request.target() == "/five" { "5\r\nhello\r\n" } else { "" };
        exchange.send(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"))?;
        let _ = gate.lock().recv();
        let trailers = if exchange.request.target() == "/five" { "" } else { "grpc-status: 0\r\n" };
        exchange.send(format!("0\r\n{trailers}\r\n"))?;
        Ok(crate::support::upstream::AfterResponse::KeepAlive)
    });
    let diana = gateway_to(&upstream.url());
    let initial_window = |bytes| [(4, bytes)];
    let mut client = Frames::connect(diana.port(), &initial_window(5));
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/five")).unwrap();
    assert_eq!(client.next_of(DATA).unwrap().payload, b"hello");
    go_on.send(()).unwrap();
    assert_eq!(until_end(&mut client, 1), (vec![], None));
    let mut client = Frames::connect(diana.port(), &initial_window(0));
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/none")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().kind, HEADERS);
    go_on.send(()).unwrap();
    assert!(matches!(until_end(&mut client, 1), (body, Some(_)) if body.is_empty()));
}

/// A denial is sent at once, or, to a client that grants no window for its body, when it does.
#[test]
fn a_denial_waits_for_window() {
    let upstream = Upstream::start(|exchange| exchange.respond("200 OK", "", b""));
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, upstream: '{}', workers: 1}}\nrules: [{{name: each, by: ip, limit: 1/h}}]\n",
        upstream.url()
    ));
    let mut client = Frames::connect(diana.port(), &[(4, 0)]);
    client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::get("/")).unwrap();
    assert_eq!(client.next_of(HEADERS).unwrap().stream, 1);
    for stream in [3, 5] {
        client.send(HEADERS, END_HEADERS | END_STREAM, stream, &frames::get("/")).unwrap();
        let head = client.next_of(HEADERS).unwrap();
        assert_eq!((head.stream, head.flags & END_STREAM), (stream, 0));
    }
    for stream in [5, 3] {
        client.give_window(stream, 4_096);
        let (body, trailers) = until_end(&mut client, stream);
        assert!(body.starts_with(b"{") && body.ends_with(b"}\n") && trailers.is_none(), "{body:?}");
    }
}

/// RFC 9113 §8.2.1, as in heads. The upstream gets no complete request.
#[test]
fn rejects_padded_trailers_for_http2_upstreams() {
    let upstream = Service::h2c();
    let diana = gateway_to(&format!("h2c://127.0.0.1:{}", upstream.port()));
    let post = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    for (value, status) in [(" a", frames::BAD_REQUEST), ("a\t", frames::BAD_REQUEST), ("a", frames::OK)] {
        let mut client = Frames::connect(diana.port(), &[]);
        client.send(HEADERS, END_HEADERS, 1, &frames::block(&post)).unwrap();
        client.send(DATA, 0, 1, b"x").unwrap();
        client.send(HEADERS, END_HEADERS | END_STREAM, 1, &frames::block(&[("x-digest", value)])).unwrap();
        let head = client.next_of(HEADERS).unwrap();
        assert_eq!((head.kind, &head.payload[..1]), (HEADERS, &status[..]), "{value:?}");
    }
    assert_eq!(upstream.last().trailers.unwrap()["x-digest"], "a");
}

/// Regression: h2 does not send a head with such a field. The client got a reset, which counted as its own, or no
/// hints.
#[tokio::test(flavor = "multi_thread")]
async fn removes_headers_that_http2_forbids() {
    let upstream = Upstream::start(|exchange| {
        exchange.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nte: gzip\r\nkeep-alive: 1\r\n\r\n")?;
        exchange.respond("200 OK", "te: gzip\r\nkeep-alive: 1\r\nx-kept: 1\r\n", b"")
    });
    let diana = gateway_to(&upstream.url());
    let (interim, status) = tokio::time::timeout(LONG, with_interim(diana.port(), || ())).await.unwrap();
    assert_eq!((interim.len(), status), (1, 200), "{interim:?}");
    assert_eq!(interim[0].headers()["link"], "</a.css>");
    let response = get(&mut connect(diana.port()).await, "http://a/").await;
    assert_eq!((response.headers().get("te"), &response.headers()["x-kept"]), (None, &"1".parse().unwrap()));
}
