//! Tests of the exact bytes written to an upstream, and of responses that arrive split at any position.

use super::*;
use crate::connection::{ConnInfo, Deadlines, StartTime};
use http::{HeaderMap, Method, Request};
use proptest::prelude::*;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

/// A parsed response: its head, body, trailers, and the unread input.
#[derive(Debug, PartialEq)]
struct Read {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    trailers: Option<HeaderMap>,
    left: Vec<u8>,
    is_last: bool,
}

/// Parses a response that arrives in pieces; the end of the input is the end of the connection.
fn read<'a>(asked: &Method, pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Read, String> {
    let mut input = BytesMut::new();
    let mut pieces = pieces.into_iter();
    let head = loop {
        match decode::read(&mut input, asked).map_err(|fault| fault.to_string())? {
            Some(head) => break head,
            None => input.extend_from_slice(pieces.next().ok_or("closed in the head")?),
        }
    };
    let mut rest = head.rest;
    let (mut body, mut trailers) = (Vec::new(), None);
    loop {
        match rest.take(&mut input).map_err(|fault| fault.to_string())? {
            Some(frame) => match frame.into_data() {
                Ok(data) => body.extend_from_slice(&data),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
            None if rest.is_over() => break,
            None => match pieces.next() {
                Some(piece) => input.extend_from_slice(piece),
                None if rest.ends_with_connection() => break,
                None => return Err("closed in the body".to_owned()),
            },
        }
    }
    pieces.for_each(|piece| input.extend_from_slice(piece));
    let (head, is_last) = (head.response.into_parts().0, head.is_last);
    Ok(Read { status: head.status.as_u16(), headers: head.headers, body, trailers, left: input.to_vec(), is_last })
}

fn whole(text: &str) -> Result<Read, String> {
    read(&Method::GET, [text.as_bytes()])
}

#[test]
fn a_body_ends_where_its_head_says() {
    let counted = whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX: \r\n\r\nabcHTTP").unwrap();
    assert_eq!((counted.body, counted.left, counted.is_last), (b"abc".to_vec(), b"HTTP".to_vec(), false));
    assert_eq!(
        (&counted.headers["content-length"], &counted.headers["x"]),
        (&"3".parse().unwrap(), &"".parse().unwrap())
    );
    let chunks =
        whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\nmore").unwrap();
    assert_eq!((chunks.body, chunks.left, chunks.is_last), (b"abc".to_vec(), b"more".to_vec(), false));
    assert_eq!((chunks.headers.len(), chunks.trailers), (0, None));
    let until_closed = whole("HTTP/1.1 200 OK\r\n\r\nabc").unwrap();
    assert_eq!((until_closed.body, until_closed.is_last), (b"abc".to_vec(), true));
    for head in ["204 No Content\r\n", "304 Not Modified\r\nContent-Length: 3\r\n", "101 X\r\nUpgrade: foo\r\n"] {
        let none = whole(&format!("HTTP/1.1 {head}\r\nabc")).unwrap();
        assert_eq!((none.body, none.left), (vec![], b"abc".to_vec()), "{head}");
    }
    let asked_for_head = read(&Method::HEAD, [&b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"[..]]).unwrap();
    assert_eq!((asked_for_head.body, &asked_for_head.headers["content-length"]), (vec![], &"3".parse().unwrap()));
}

#[test]
fn what_is_in_doubt_is_not_used_again_or_not_at_all() {
    let is_last = |head: &str| whole(&format!("{head}\r\n\r\n")).unwrap().is_last;
    assert!(!is_last("HTTP/1.1 204 X"));
    assert!(is_last("HTTP/1.1 204 X\r\nConnection: x, Close"));
    assert!(is_last("HTTP/1.1 204 X\r\nContent-Length: 5"));
    assert!(is_last("HTTP/1.0 204 X"));
    assert!(!is_last("HTTP/1.0 204 X\r\nConnection: keep-alive"));
    let both = whole("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").unwrap();
    assert_eq!((both.is_last, both.headers.get("content-length"), both.body), (true, None, vec![]));
    for (head, why) in [
        ("Content-Length: 3\r\nContent-Length: 4", "it has two lengths"),
        ("Content-Length: +3", "its length is no number"),
        ("Content-Length: 3, 3", "its length is no number"),
        ("Content-Length:", "its length is no number"),
        ("Content-Length: 99999999999999999999", "its length is no number"),
        ("Transfer-Encoding: gzip, chunked", "its transfer-encoding is not just `chunked`"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "its transfer-encoding is not just `chunked`"),
        ("Transfer-Encoding: chunked, x", "its transfer-encoding is not just `chunked`"),
        ("A : b", "the head of its answer is no HTTP"),
        ("A: b\r\n c", "the head of its answer is no HTTP"),
    ] {
        assert_eq!(whole(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nabc")).unwrap_err(), why, "{head}");
    }
    let same = whole("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc").unwrap();
    assert_eq!((same.body, same.headers.get_all("content-length").iter().count()), (b"abc".to_vec(), 1));
    assert!(whole("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").is_err());
    assert!(whole("HTTP/2.0 200 OK\r\n\r\n").is_err());
    assert!(whole("HTTP/1.1 099 X\r\n\r\n").is_err());
}

#[test]
fn bad_chunks_end_the_answer() {
    for chunks in [
        "x\r\n",
        "-1\r\n",
        "\r\n",
        "2\r\nabc\r\n",
        "11111111111111111\r\n",
        "0\r\nA : b\r\n\r\n",
        "2\r\nab\n\n0\r\n\r\n",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        assert!(whole(&answer).is_err_and(|why| !why.starts_with("closed")), "{chunks:?}");
    }
}

#[test]
fn heads_lines_and_trailers_are_bounded() {
    let long = "a".repeat(70 << 10);
    for answer in [
        format!("HTTP/1.1 200 OK\r\nX: {long}"),
        format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(200)),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;{long}"),
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: {long}"),
    ] {
        assert!(whole(&answer).is_err_and(|why| !why.starts_with("closed")), "{}", &answer[..60]);
    }
}

#[test]
fn what_concerns_the_connection_ends_here() {
    let answer = whole(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Mine, Content-Length\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n\
         Upgrade: h2c\r\nProxy-Connection: x\r\nContent-Length: 0\r\nX-Other: 2\r\nX-Other: 3\r\n\r\n",
    )
    .unwrap();
    let mut names: Vec<_> =
        answer.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    names.sort_unstable();
    assert_eq!(names, [("content-length", "0"), ("x-other", "2"), ("x-other", "3")]);
    let switched = whole("HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n").unwrap();
    assert_eq!(switched.headers["upgrade"], "websocket");
}

#[test]
fn only_what_may_trail_does() {
    let answer = whole(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGrpc-Status: 0\r\nContent-Length: 7\r\nConnection: x\r\n\r\n",
    )
    .unwrap();
    let trailers = answer.trailers.unwrap();
    assert_eq!((trailers.len(), &trailers["grpc-status"]), (1, &"0".parse().unwrap()));
}

/// Responses of all kinds, and bytes that follow them.
fn answers() -> impl Strategy<Value = Vec<u8>> {
    let body = || prop::collection::vec(any::<u8>(), 0..40);
    let head = |fields: String| format!("HTTP/1.1 200 OK\r\nServer: x\r\n{fields}\r\n").into_bytes();
    let counted = body().prop_map(move |body| [head(format!("Content-Length: {}\r\n", body.len())), body].concat());
    let chunked = prop::collection::vec(body(), 0..4).prop_map(move |chunks| {
        let mut answer = head("Transfer-Encoding: chunked\r\n".to_owned());
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            answer.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            answer.extend_from_slice(chunk);
            answer.extend_from_slice(b"\r\n");
        }
        answer.extend_from_slice(b"0\r\nA: b\r\n\r\n");
        answer
    });
    let until_closed = body().prop_map(move |body| [head(String::new()), body].concat());
    (prop_oneof![counted, chunked, until_closed], body()).prop_map(|(answer, behind)| [answer, behind].concat())
}

proptest! {
    /// A response is parsed in the same way wherever it is split.
    #[test]
    fn pieces_make_no_difference(answer in answers(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(answer.len() + 1)).collect();
        cuts.extend([0, answer.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &answer[pair[0]..pair[1]]);
        prop_assert_eq!(read(&Method::GET, pieces), read(&Method::GET, [&answer[..]]));
    }

    /// No input from an upstream causes a panic.
    #[test]
    fn anything_may_come(
        answer in answers(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
    ) {
        let mut answer = answer;
        for (place, byte) in changes {
            let place = place.index(answer.len());
            answer[place] = byte;
        }
        let _ = read(&Method::GET, [&answer[..]]);
    }
}

/// A connection, and the upstream's end of it.
async fn connected() -> (Http1, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (theirs, _) = listener.accept().await.unwrap();
    let deadlines = Arc::new(Deadlines::new(StartTime::now()));
    (Http1::new(UpstreamIo::Plain(ours), deadlines.add()), theirs)
}

/// Sends a request without a body.
async fn send(connection: &mut Http1, request: http::request::Builder) -> Sent {
    let (head, ()) = request.body(()).unwrap().into_parts();
    let conn_info = ConnInfo::new("203.0.113.7:1".parse().unwrap(), &[], http::uri::Scheme::HTTP);
    let onward = UpstreamRequest { head: &head, conn_info: &conn_info, upgrade: None };
    connection.send(onward, b"backend", RequestBodyStream::empty(), Duration::from_secs(60)).await
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
async fn a_request_is_written_as_it_should_be() {
    let (mut connection, mut upstream) = connected().await;
    let asked = Request::post("http://a.example/b?c").header("x-mine", "1");
    let (sent, text) = tokio::join!(send(&mut connection, asked), async {
        let text = read_until(&mut upstream, "\r\n\r\n").await;
        upstream.write_all(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 X\r\n\r\n").await.unwrap();
        text
    });
    assert!(matches!(sent, Sent::Answered(response) if response.status() == StatusCode::NO_CONTENT));
    assert_eq!(
        text,
        "POST /b?c HTTP/1.1\r\nhost: a.example\r\nx-mine: 1\r\nx-forwarded-for: 203.0.113.7\r\n\
         forwarded: for=203.0.113.7;proto=http\r\nx-forwarded-proto: http\r\nx-forwarded-host: a.example\r\n\
         content-length: 0\r\n\r\n"
    );
    assert!(connection.is_over() && connection.is_reusable() && !connection.is_sending());
    assert!(poll_fn(|context| Poll::Ready(connection.is_free(context))).await);
    // The upstream sends an unsolicited response.
    upstream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    connection.io.read_buf(&mut connection.input).await.unwrap();
    assert!(!connection.is_reusable());
    assert!(!poll_fn(|context| Poll::Ready(connection.is_free(context))).await);
}

#[tokio::test]
async fn an_upstream_that_only_says_that_it_goes_on_is_broken() {
    let (mut connection, mut upstream) = connected().await;
    let (sent, ()) = tokio::join!(send(&mut connection, Request::get("/").header("host", "a")), async {
        upstream.write_all("HTTP/1.1 103 X\r\n\r\n".repeat(17).as_bytes()).await.unwrap();
    });
    assert!(matches!(
        sent,
        Sent::Failed(UpstreamError::Broken(WireError::NoHttp("it says too often that it goes on")))
    ));
}

#[tokio::test]
async fn one_that_was_closed_is_not_free() {
    let (mut connection, upstream) = connected().await;
    drop(upstream);
    // The end of the stream wakes the task that polled.
    poll_fn(|context| if connection.is_free(context) { Poll::Pending } else { Poll::Ready(()) }).await;
}

/// A surplus response that arrived after the runtime last polled the socket was sent to the next client.
#[tokio::test]
async fn a_connection_with_unread_bytes_is_not_free_even_if_the_runtime_does_not_know_yet() {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let io = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    let deadlines = Arc::new(Deadlines::new(StartTime::now()));
    let mut connection = Http1::new(UpstreamIo::Plain(io), deadlines.add());
    assert!(poll_fn(|context| Poll::Ready(connection.is_free(context))).await);
    // The runtime runs on this thread, too, so it gets no event in between.
    upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    assert!(!poll_fn(|context| Poll::Ready(connection.is_free(context))).await);
}
