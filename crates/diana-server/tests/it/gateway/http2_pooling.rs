//! HTTP/2 connections to an upstream: as many as are needed, up to the limit.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use bytes::Bytes;
use diana_testing::{Port, wait_until};
use http::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// An upstream with a stream limit for each connection, which responds to `/held` only when it is released.
struct LimitedUpstream {
    port: Port,
    connections: Arc<AtomicUsize>,
    held: Arc<AtomicUsize>,
    releases: Arc<Semaphore>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl LimitedUpstream {
    fn start(streams: u32) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let port = Port::claim().unwrap();
        let listener = port.listen().unwrap();
        listener.set_nonblocking(true).unwrap();
        let [connections, held] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let releases = Arc::new(Semaphore::new(0));
        let all = (Arc::clone(&connections), Arc::clone(&held), Arc::clone(&releases));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let (connections, held, releases) = all.clone();
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    let Ok(mut connection) =
                        builder.max_concurrent_streams(streams).handshake::<_, Bytes>(socket).await
                    else {
                        return;
                    };
                    while let Some(Ok((request, mut reply))) = connection.accept().await {
                        let (held, releases) = (Arc::clone(&held), Arc::clone(&releases));
                        tokio::spawn(async move {
                            if request.uri().path() == "/held" {
                                held.fetch_add(1, Ordering::SeqCst);
                                releases.acquire().await.unwrap().forget();
                            }
                            if let Ok(mut body) = reply.send_response(Response::new(()), false) {
                                let _ = body.send_data(Bytes::from_static(b"done"), true);
                            }
                        });
                    }
                });
            }
        });
        Self { port, connections, held, releases, runtime: Some(runtime) }
    }

    fn diana(&self) -> Diana {
        Diana::serve(&format!(
            "gateway: {{listen: $LISTEN, workers: 1, upstream: 'h2c://127.0.0.1:{}', timeouts: {{connect: 300s}}}}\nrules: []\n",
            self.port.number()
        ))
    }

    fn wait_for_held(&self, requests: usize) {
        let held = || (self.held.load(Ordering::SeqCst) >= requests).then_some(());
        wait_until("requests to be in flight", LONG, held).unwrap();
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for LimitedUpstream {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns clients that wait for a response to `/held`.
fn send_held(diana: &Diana, clients: usize) -> Vec<Client> {
    let send_request = |_| {
        let mut client = Client::connect(diana.port());
        client.send("GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
        client
    };
    (0..clients).map(send_request).collect()
}

/// Regression: when all streams of the only connection were in use, all other requests waited for them, which counted
/// as a failure of the upstream.
#[test]
fn opens_a_connection_when_all_streams_are_in_use() {
    let upstream = LimitedUpstream::start(2);
    let diana = upstream.diana();
    let mut clients = send_held(&diana, 10);
    upstream.wait_for_held(10);
    assert_eq!(upstream.connections(), 5);
    // The open connections are enough for later requests.
    upstream.releases.add_permits(10);
    for client in &mut clients {
        assert_eq!(client.response().text(), "done");
    }
    for _ in 0..20 {
        assert_eq!(get(diana.port(), "/").text(), "done");
    }
    assert_eq!(upstream.connections(), 5);
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
}

#[test]
fn concurrent_requests_share_a_connection() {
    let upstream = LimitedUpstream::start(100);
    let diana = upstream.diana();
    let mut clients = send_held(&diana, 50);
    upstream.wait_for_held(50);
    assert_eq!(upstream.connections(), 1);
    upstream.releases.add_permits(50);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn opens_at_most_32_connections_and_then_waits_for_a_stream() {
    let upstream = LimitedUpstream::start(1);
    let diana = upstream.diana();
    let mut clients = send_held(&diana, 40);
    upstream.wait_for_held(32);
    assert_eq!(upstream.connections(), 32);
    assert_eq!(upstream.held.load(Ordering::SeqCst), 32);
    upstream.releases.add_permits(40);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(upstream.connections(), 32);
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
}

/// The upstream is not at fault: the file allows that many requests at once.
#[test]
fn no_free_stream_is_a_503_and_not_an_upstream_failure() {
    let upstream = LimitedUpstream::start(1);
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, workers: 1, upstream: 'h2c://127.0.0.1:{}'}}\nrules: []\n",
        upstream.port.number()
    ));
    let clients = send_held(&diana, 32);
    upstream.wait_for_held(32);
    for mut client in send_held(&diana, 4) {
        let response = client.response();
        assert_eq!(response.status, 503, "{}", response.text());
        assert!(response.text().contains("in use"), "{}", response.text());
    }
    assert!(!diana.output().contains(" ejected: "), "{}", diana.output());
    drop(clients);
}
