//! Tests of the exact bytes written to an upstream, and of responses that arrive split at any position.

use super::*;
use diana_net::ConnInfo;
use diana_net::coarse_timer::{Deadlines, StartTime};
use http::{HeaderMap, Method, Request};
use proptest::prelude::*;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A parsed response: its head, body, trailers, and the unread input.
#[derive(Debug, PartialEq)]
struct ReadResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    rest: Vec<u8>,
    is_last: bool,
}

/// Parses a response that arrives in parts; the end of the input is the end of the connection.
fn read<'a>(method: &Method, parts: impl IntoIterator<Item = &'a [u8]>) -> Result<ReadResponse, String> {
    let mut input = BytesMut::new();
    let mut parts = parts.into_iter();
    let head = loop {
        match decode::read(&mut input, method).map_err(|fault| fault.to_string())? {
            Some(head) => break head,
            None => input.extend_from_slice(parts.next().ok_or("closed in the head")?),
        }
    };
    let mut decoder = head.decoder;
    let (mut body, mut trailers) = (Vec::new(), None);
    loop {
        match decoder.take(&mut input).map_err(|fault| fault.to_string())? {
            Some(frame) => match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            None if decoder.is_over() => break,
            None => match parts.next() {
                Some(part) => input.extend_from_slice(part),
                None if decoder.ends_with_connection() => break,
                None => return Err("closed in the body".to_owned()),
            },
        }
    }
    parts.for_each(|part| input.extend_from_slice(part));
    let (head, is_last) = (head.response.into_parts().0, head.is_last);
    Ok(ReadResponse {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
        trailers,
        rest: input.to_vec(),
        is_last,
    })
}

fn whole(text: &str) -> Result<ReadResponse, String> {
    read(&Method::GET, [text.as_bytes()])
}

#[test]
fn a_body_ends_as_its_head_states() {
    let counted = whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: \r\n\r\nabcHTTP").unwrap();
    assert_eq!((counted.body, counted.rest, counted.is_last), (b"abc".to_vec(), b"HTTP".to_vec(), false));
    assert_eq!(
        (&counted.headers["content-length"], &counted.headers["x"]),
        (&"3".parse().unwrap(), &"".parse().unwrap())
    );
    let chunks =
        whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\nmore").unwrap();
    assert_eq!((chunks.body, chunks.rest, chunks.is_last), (b"abc".to_vec(), b"more".to_vec(), false));
    assert_eq!((chunks.headers.len(), chunks.trailers), (0, None));
    let until_closed = whole("HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
    assert_eq!((until_closed.body, until_closed.is_last), (b"abc".to_vec(), true));
    for head in ["204 No Content\r\n", "304 Not Modified\r\nContent-Length: 3\r\n", "101 X\r\nUpgrade: foo\r\n"] {
        let none = whole(&format!("HTTP/1.1 {head}\r\nabc")).unwrap();
        assert_eq!((none.body, none.rest), (vec![], b"abc".to_vec()), "{head}");
    }
    let asked_for_head = read(&Method::HEAD, [&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"[..]]).unwrap();
    assert_eq!((asked_for_head.body, &asked_for_head.headers["content-length"]), (vec![], &"3".parse().unwrap()));
}

#[test]
fn an_ambiguous_response_is_rejected_or_closes_the_connection() {
    let is_last = |head: &str| whole(&format!("{head}\r\n\r\n")).unwrap().is_last;
    assert!(!is_last("HTTP/1.1 204 X"));
    assert!(is_last("HTTP/1.1 204 X\r\nConnection: x, Close"));
    assert!(is_last("HTTP/1.1 204 X\r\nContent-Length: 5"));
    assert!(is_last("HTTP/1.0 204 X"));
    assert!(!is_last("HTTP/1.0 204 X\r\nConnection: keep-alive"));
    let both = whole("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").unwrap();
    assert_eq!((both.is_last, both.headers.get("content-length"), both.body), (true, None, vec![]));
    for (head, reason) in [
        ("Content-Length: 3\r\nContent-Length: 4", "conflicting `Content-Length` headers"),
        ("Content-Length: +3", "invalid `Content-Length`"),
        ("Content-Length: 3, 3", "invalid `Content-Length`"),
        ("Content-Length:", "invalid `Content-Length`"),
        ("Content-Length: 99999999999999999999", "invalid `Content-Length`"),
        ("Transfer-Encoding: gzip, chunked", "unsupported `Transfer-Encoding`, expected `chunked`"),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "unsupported `Transfer-Encoding`, expected `chunked`",
        ),
        ("Transfer-Encoding: chunked, x", "unsupported `Transfer-Encoding`, expected `chunked`"),
        ("A : b", "invalid response head"),
        ("A: b\r\n c", "invalid response head"),
    ] {
        assert_eq!(
            whole(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nabc")).unwrap_err(),
            format!("invalid HTTP: {reason}"),
            "{head}"
        );
    }
    let same = whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    assert_eq!((same.body, same.headers.get_all("content-length").iter().count()), (b"abc".to_vec(), 1));
    assert!(whole("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").is_err());
    assert!(whole("HTTP/2.0 200 OK\r\n\r\n").is_err());
    assert!(whole("HTTP/1.1 099 X\r\n\r\n").is_err());
}

#[test]
fn invalid_chunks_are_errors() {
    for chunks in [
        "x\r\n",
        "-1\r\n",
        "\r\n",
        "2\r\nabc\r\n",
        "11111111111111111\r\n",
        "0\r\nA : b\r\n\r\n",
        "2\r\nab\n\n0\r\n\r\n",
    ] {
        let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        assert!(whole(&response).is_err_and(|error| !error.starts_with("closed")), "{chunks:?}");
    }
}

#[test]
fn heads_lines_and_trailers_are_bounded() {
    let long = "a".repeat(70 << 10);
    for response in [
        format!("HTTP/1.1 200 OK\r\nX: {long}"),
        format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(200)),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{long}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {long}"),
    ] {
        assert!(whole(&response).is_err_and(|error| !error.starts_with("closed")), "{}", &response[..60]);
    }
}

#[test]
fn removes_hop_by_hop_headers() {
    let response = whole(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine, Content-Length\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n\
         Upgrade: h2c\r\nProxy-Connection: x\r\nContent-Length: 0\r\nX-Other: 2\r\nX-Other: 3\r\n\r\n",
    )
    .unwrap();
    let mut names: Vec<_> =
        response.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    names.sort_unstable();
    assert_eq!(names, [("content-length", "0"), ("x-other", "2"), ("x-other", "3")]);
    let switched = whole("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
    assert_eq!(switched.headers["upgrade"], "websocket");
}

#[test]
fn removes_forbidden_trailers() {
    let response = whole(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGrpc-Status: 0\r\nContent-Length: 7\r\nConnection: x\r\n\r\n",
    )
    .unwrap();
    let trailers = response.trailers.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()));
}

/// Responses of all kinds, and bytes that follow them.
fn responses() -> impl Strategy<Value = Vec<u8>> {
    let body = || prop::collection::vec(any::<u8>(), 0..40);
    let head = |fields: String| format!("HTTP/1.1 200 OK\r\nServer: x\r\n{fields}\r\n").into_bytes();
    let counted = body().prop_map(move |body| [head(format!("Content-Length: {}\r\n", body.len())), body].concat());
    let chunked = prop::collection::vec(body(), 0..4).prop_map(move |chunks| {
        let mut response = head("Transfer-Encoding: chunked\r\n".to_owned());
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            response.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            response.extend_from_slice(chunk);
            response.extend_from_slice(b"\r\n");
        }
        response.extend_from_slice(b"0\r\nA: b\r\n\r\n");
        response
    });
    let until_closed = body().prop_map(move |body| [head(String::new()), body].concat());
    (prop_oneof![counted, chunked, until_closed], body()).prop_map(|(response, rest)| [response, rest].concat())
}

proptest! {
    /// A response is parsed in the same way wherever it is split.
    #[test]
    fn splitting_makes_no_difference(
        response in responses(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(response.len() + 1)).collect();
        cuts.extend([0, response.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| &response[pair[0]..pair[1]]);
        prop_assert_eq!(read(&Method::GET, parts), read(&Method::GET, [&response[..]]));
    }

    /// No input from an upstream causes a panic.
    #[test]
    fn accepts_any_bytes(
        response in responses(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut response = response;
        for (index, byte) in changes {
            let index = index.index(response.len());
            response[index] = byte;
        }
        let _ = read(&Method::GET, [&response[..]]);
    }
}

/// A connection, and the upstream's end of it.
async fn connected() -> (UpstreamConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (theirs, _) = listener.accept().await.unwrap();
    let deadlines = Arc::new(Deadlines::new(StartTime::now()));
    (UpstreamConnection::new(UpstreamIo::plain(ours), deadlines.add()), theirs)
}

/// Sends a request without a body.
async fn send(connection: &mut UpstreamConnection, request: http::request::Builder) -> Sent {
    let (head, ()) = request.body(()).unwrap().into_parts();
    let conn_info = ConnInfo::new("203.0.113.7:1".parse().unwrap(), &[], http::uri::Scheme::HTTP);
    let request = UpstreamRequest { head: &head, conn_info: &conn_info, upgrade: None };
    connection.send(request, b"backend", PacedUpload::empty(), Duration::from_secs(60)).await
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(end) {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert!(read > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
    }
    text
}

#[tokio::test]
async fn writes_a_request() {
    let (mut connection, mut upstream) = connected().await;
    let request = Request::post("http://a.example/b?c").header("x-mine", "1");
    let (sent, text) = tokio::join!(send(&mut connection, request), async {
        let text = read_until(&mut upstream, "\r\n\r\n").await;
        upstream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\n\r\n").await.unwrap();
        text
    });
    assert!(matches!(sent, Sent::Response(response) if response.status() == StatusCode::NO_CONTENT));
    assert_eq!(
        text,
        "POST /b?c HTTP/1.1\r\nhost: a.example\r\nx-mine: 1\r\nx-forwarded-for: 203.0.113.7\r\n\
         forwarded: for=203.0.113.7;proto=http\r\nx-forwarded-proto: http\r\nx-forwarded-host: a.example\r\n\
         content-length: 0\r\n\r\n"
    );
    assert!(connection.is_over() && connection.is_reusable() && !connection.is_sending());
    assert!(poll_fn(|context| Poll::Ready(connection.is_idle(context))).await);
    // The upstream sends an unsolicited response.
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    connection.io.read_buf(&mut connection.input).await.unwrap();
    assert!(!connection.is_reusable());
    assert!(!poll_fn(|context| Poll::Ready(connection.is_idle(context))).await);
}

#[tokio::test]
async fn too_many_interim_responses_are_an_error() {
    let (mut connection, mut upstream) = connected().await;
    let (sent, ()) = tokio::join!(send(&mut connection, Request::get("/").header("host", "a")), async {
        upstream.write_all("HTTP/1.1 103 X\r\n\r\n".repeat(17).as_bytes()).await.unwrap();
    });
    assert!(matches!(sent, Sent::Failed(UpstreamError::Broken(WireError::InvalidHttp("too many interim responses")))));
}

#[tokio::test]
async fn a_closed_connection_is_not_idle() {
    let (mut connection, upstream) = connected().await;
    drop(upstream);
    // The end of the stream wakes the task that polled.
    poll_fn(|context| if connection.is_idle(context) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// A surplus response that arrived after the runtime last polled the socket was sent to the next client.
#[tokio::test]
async fn a_connection_with_unread_bytes_is_not_idle_before_the_runtime_polls() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let io = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    let deadlines = Arc::new(Deadlines::new(StartTime::now()));
    let mut connection = UpstreamConnection::new(UpstreamIo::plain(io), deadlines.add());
    assert!(poll_fn(|context| Poll::Ready(connection.is_idle(context))).await);
    // The runtime runs on this thread, too, so it gets no event in between.
    upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(!poll_fn(|context| Poll::Ready(connection.is_idle(context))).await);
}
