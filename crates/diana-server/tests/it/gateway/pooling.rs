//! HTTP/2 connections to an upstream: as many as are needed, up to the limit.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use bytes::Bytes;
use diana_testing::{Port, wait_until};
use http::Response;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// An upstream with a stream limit for each connection, which responds to `/held` only when it is released.
struct Narrow {
    port: Port,
    connections: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    answers: Arc<Semaphore>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Narrow {
    fn start(streams: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let port = Port::claim().unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).unwrap();
        listener.set_nonblocking(true).unwrap();
        let [connections, held] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let answers = Arc::new(Semaphore::new(0));
        let all = (Arc::clone(&connections), Arc::clone(&held), Arc::clone(&answers));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (connections, held, answers) = all.clone();
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    let Ok(mut connection) =
                        builder.max_concurrent_streams(streams).handshake::<_, Bytes>(socket).await
                    else {
                        return;
                    };
                    while let Some(Ok((request, mut reply))) = connection.accept().await {
                        let (held, answers) = (Arc::clone(&held), Arc::clone(&answers));
                        tokio::spawn(async move {
                            if request.uri().path() == "/held" {
                                held.fetch_add(1, Ordering::SeqCst);
                                answers.acquire().await.unwrap().forget();
                            }
                            if let Ok(mut body) = reply.send_response(Response::new(()), false) {
                                let _ = body.send_data(Bytes::from_static(b"done"), true);
                            }
                        });
                    }
                });
            }
        });
        Self { port, connections, held, answers, runtime: Some(runtime) }
    }

    fn before(&self) -> Diana {
        Diana::serve(&format!(
            "gateway: {{listen: $LISTEN, workers: 1, upstream: 'h2c://127.0.0.1:{}', timeouts: {{connect: 300s}}}}\nrules: []\n",
            self.port.number()
        ))
    }

    fn wait_for_held(&self, requests: usize) {
        let held = || (self.held.load(Ordering::SeqCst) >= requests).then_some(());
        wait_until("requests to be at work", LONG, held).unwrap();
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns clients that wait for a response to `/held`.
fn asking(diana: &Diana, clients: usize) -> Vec<Client> {
    let ask = |_| {
        let mut client = Client::connect(diana.port());
        client.send("GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
        client
    };
    (0..clients).map(ask).collect()
}

/// Regression: when all streams of the only connection were in use, all other requests waited for them, which counted
/// as a failure of the upstream.
#[test]
fn another_connection_is_made_when_all_streams_are_in_use() {
    let upstream = Narrow::start(2);
    let diana = upstream.before();
    let mut clients = asking(&diana, 10);
    upstream.wait_for_held(10);
    assert_eq!(upstream.connections(), 5);
    // Those that are there are enough for what comes after.
    upstream.answers.add_permits(10);
    for client in &mut clients {
        assert_eq!(client.answer().text(), "done");
    }
    for _ in 0..20 {
        assert_eq!(get(diana.port(), "/").text(), "done");
    }
    assert_eq!(upstream.connections(), 5);
    assert!(!diana.said().contains("left out"), "{}", diana.said());
}

#[test]
fn requests_that_come_at_once_share_a_connection() {
    let upstream = Narrow::start(100);
    let diana = upstream.before();
    let mut clients = asking(&diana, 50);
    upstream.wait_for_held(50);
    assert_eq!(upstream.connections(), 1);
    upstream.answers.add_permits(50);
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
}

#[test]
fn there_are_32_connections_at_most_and_the_others_wait_for_a_stream() {
    let upstream = Narrow::start(1);
    let diana = upstream.before();
    let mut clients = asking(&diana, 40);
    upstream.wait_for_held(32);
    assert_eq!(upstream.connections(), 32);
    assert_eq!(upstream.held.load(Ordering::SeqCst), 32);
    upstream.answers.add_permits(40);
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    assert_eq!(upstream.connections(), 32);
    assert!(!diana.said().contains("left out"), "{}", diana.said());
}

/// The upstream is not at fault: the file allows that many requests at once.
#[test]
fn a_request_that_gets_no_stream_in_time_is_told_so_and_the_upstream_is_not_blamed() {
    let upstream = Narrow::start(1);
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: 'h2c://127.0.0.1:{}'}}\nrules: []\n",
        upstream.port.number()
    ));
    let clients = asking(&diana, 32);
    upstream.wait_for_held(32);
    for mut client in asking(&diana, 4) {
        let answer = client.answer();
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(answer.text().contains("in use"), "{}", answer.text());
    }
    assert!(!diana.said().contains("left out"), "{}", diana.said());
    drop(clients);
}
