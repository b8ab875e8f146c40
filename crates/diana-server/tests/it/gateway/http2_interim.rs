//! Interim responses over HTTP/2: 100 Continue and 103 Early Hints.

use super::http2::gateway_to;
use crate::support::http2::request;
use crate::support::program::LONG;
use crate::support::upstream::Upstream;
use bytes::Bytes;

/// Returns the interim responses to a request, and the status of the response. Calls `notice` for each interim
/// response.
pub(super) async fn with_interim(port: u16, notice: impl Fn()) -> (Vec<http::Response<()>>, u16) {
    let socket = tokio::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let (sender, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    let request = http::Request::get("http://a/page").body(()).unwrap();
    let (mut response, _) = sender.send_request(request, true).unwrap();
    let mut interim = Vec::new();
    while let Some(Ok(response)) = std::future::poll_fn(|context| response.poll_informational(context)).await {
        interim.push(response);
        notice();
    }
    (interim, response.await.unwrap().status().as_u16())
}

/// RFC 9110, section 15.2: a proxy forwards them. Many HTTP/1 clients take the first response for the last.
#[tokio::test(flavor = "multi_thread")]
async fn forwards_early_hints_before_the_response() {
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let upstream = Upstream::start(move |exchange| {
        exchange.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        exchange.send("HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\nconnection: x\r\nx: y\r\n\r\n")?;
        let _ = gate.lock().recv();
        exchange.respond("200 OK", "", b"page")
    });
    let diana = gateway_to(&upstream.url());
    let port = diana.port();
    // The upstream responds only when the client has the hints.
    let request = with_interim(port, || go_on.send(()).unwrap());
    let (interim, status) = tokio::time::timeout(LONG, request).await.unwrap();
    assert_eq!((interim.len(), status), (1, 200), "{interim:?}");
    assert_eq!((interim[0].status().as_u16(), &interim[0].headers()["link"]), (103, &"</a.css>".parse().unwrap()));
    assert!(interim[0].headers().get("x").is_none());
    // Over HTTP/1 it is the final response alone.
    drop(go_on);
    let response = tokio::task::spawn_blocking(move || crate::support::client::get(port, "/")).await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "page"));
}

#[tokio::test(flavor = "multi_thread")]
async fn forwards_early_hints_of_http2_upstreams() {
    let port = diana_testing::Port::claim().unwrap();
    let listener = port.listen().unwrap();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(socket).await.unwrap();
                while let Some(Ok((_, mut reply))) = connection.accept().await {
                    let hints = http::Response::builder().status(103).header("link", "</b.css>").body(()).unwrap();
                    reply.send_informational(hints).unwrap();
                    reply.send_response(http::Response::new(()), true).unwrap();
                }
            });
        }
    });
    let diana = gateway_to(&format!("h2c://127.0.0.1:{}", port.number()));
    let (interim, status) = tokio::time::timeout(LONG, with_interim(diana.port(), || ())).await.unwrap();
    assert_eq!((interim.len(), status), (1, 200), "{interim:?}");
    assert_eq!((interim[0].status().as_u16(), &interim[0].headers()["link"]), (103, &"</b.css>".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn sends_100_continue_when_the_body_is_needed() {
    let upstream = Upstream::echo();
    let diana = gateway_to(&upstream.url());
    let socket = tokio::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, diana.port())).await.unwrap();
    let (sender, connection) = h2::client::handshake(socket).await.unwrap();
    tokio::spawn(connection);
    let mut sender = sender.ready().await.unwrap();
    for expected in [200, 429] {
        let request =
            request("POST", "http://a/").header("expect", "100-continue").header("x-key", "k").body(()).unwrap();
        let (mut response, mut body) = sender.send_request(request, false).unwrap();
        let interim = std::future::poll_fn(|context| response.poll_informational(context));
        let interim = tokio::time::timeout(LONG, interim).await.unwrap().map(|interim| interim.unwrap().status());
        if expected == 200 {
            assert_eq!(interim.map(|status| status.as_u16()), Some(100));
            body.send_data(Bytes::from_static(b"hello"), true).unwrap();
        } else {
            assert_eq!(interim, None);
        }
        let response = tokio::time::timeout(LONG, response).await.unwrap().unwrap();
        assert_eq!(response.status(), expected);
    }
    assert_eq!((upstream.count(), upstream.last().body), (1, b"hello".to_vec()));
}
