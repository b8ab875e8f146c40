//! Connections over `bounds.connections` wait for another one to be closed, and then get 503 with `Retry-After`.

use crate::support::client::Client;
use crate::support::http2;
use crate::support::program::{Diana, LONG};
use diana_testing::wait_until;
use http::StatusCode;
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use tempfile::TempDir;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn serve(bounds: &str, timeout: &str) -> Diana {
    Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, bounds: {{{bounds}}}, timeouts: {{accept: {timeout}, header: 300s, idle: 300s}}}}\nrules: []\n"
    ))
}

/// Opens connections that are served, and keeps them.
fn open(diana: &Diana, number: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..number).map(|_| Client::connect(diana.port())).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.get("/").status, 204));
    clients
}

fn wait_for_queued(diana: &Diana, number: f64) {
    let is_queued = || (diana.metric("diana_connections_queued") == number).then_some(());
    wait_until("the queue", LONG, is_queued).unwrap();
}

fn queue(diana: &Diana, number: f64) -> Client {
    let mut client = Client::connect(diana.port());
    client.send(GET);
    wait_for_queued(diana, number);
    client
}

#[test]
fn connections_over_the_bound_are_served_in_order_when_others_are_closed() {
    let diana = serve("connections: 2, accept_queue: 2", "300s");
    let mut served = open(&diana, 2);
    let (mut third, mut fourth) = (queue(&diana, 1.0), queue(&diana, 2.0));
    // The queue is full: closed at once.
    let mut fifth = Client::connect(diana.port());
    let _ = fifth.try_send(GET);
    assert!(fifth.try_response().is_none());
    assert_eq!(diana.metric("diana_connections_rejected_total"), 1.0);
    drop(served.pop());
    assert_eq!(third.response().status, 204);
    assert_eq!(diana.metric("diana_connections_queued"), 1.0);
    // A client that gives up leaves the queue, so that another one may wait.
    let sixth = queue(&diana, 2.0);
    drop(sixth);
    wait_for_queued(&diana, 1.0);
    drop(served.pop());
    assert_eq!(fourth.response().status, 204);
    wait_for_queued(&diana, 0.0);
    assert_eq!((third.get("/").status, fourth.get("/").status), (204, 204));
    assert_eq!(diana.metric("diana_connections"), 2.0);
}

#[test]
fn a_connection_that_waited_in_vain_gets_503_with_retry_after() {
    let diana = serve("connections: 1, accept_queue: 1", "1100ms");
    let mut served = open(&diana, 1);
    let mut refused = Client::connect(diana.port());
    refused.send(GET);
    let response = refused.response();
    assert_eq!(
        (response.status, response.header("retry-after"), response.header("connection")),
        (503, Some("2"), Some("close"))
    );
    assert!(response.text().contains("too many connections are open"), "{}", response.text());
    assert!(refused.try_response().is_none(), "it is closed");
    wait_for_queued(&diana, 0.0);
    assert_eq!(diana.metric("diana_connections_rejected_total"), 1.0);
    assert_eq!(served[0].get("/").status, 204);
    let warning = "refusing new connections: 1 are open (`bounds.connections`)";
    wait_until("the warning", LONG, || diana.output().contains(warning).then_some(())).unwrap();
    // A client that sends nothing holds its place in the queue for a bounded time only.
    let silent = Client::connect(diana.port());
    wait_for_queued(&diana, 1.0);
    wait_for_queued(&diana, 0.0);
    drop(silent);
    assert_eq!(served[0].get("/").status, 204);
}

#[tokio::test]
async fn http2_and_tls_get_the_same_answer() {
    let folder = TempDir::new().unwrap();
    http2::certificate(folder.path(), "server", &["localhost"]);
    let trusted = folder.path().join("server.pem");
    let rules = "
gateway:
  listen: $LISTEN
  tls: {listen: $TLS, certificates: {certificate: $FOLDER/server.pem, key: $FOLDER/server.key}}
  bounds: {connections: 1, accept_queue: 10}
  timeouts: {accept: 1ms}
rules: []
";
    let diana = Diana::serve_in(folder, rules);
    let _served = open(&diana, 1);
    let mut plain = http2::connect(diana.port()).await;
    assert_eq!(http2::get(&mut plain, "http://a/").await.status(), StatusCode::SERVICE_UNAVAILABLE);
    let secure = http2::tls(diana.tls_port(), &[&trusted], "localhost", &["h2"]).await.unwrap();
    let mut secure = http2::over(secure).await;
    let response = http2::get(&mut secure, "https://localhost/").await;
    assert_eq!(
        (response.status(), &response.headers()["retry-after"]),
        (StatusCode::SERVICE_UNAVAILABLE, &"1".parse().unwrap())
    );
    wait_for_queued(&diana, 0.0);
}

#[test]
fn a_stop_waits_for_queued_connections_as_for_others() {
    let mut diana = serve("connections: 1, accept_queue: 1", "300s");
    let served = open(&diana, 1);
    let mut queued = queue(&diana, 1.0);
    diana.request_stop();
    // The idle one is closed, which frees its place.
    assert_eq!(queued.response().status, 204);
    assert!(diana.wait_for_exit().success());
    drop(served);
}

fn all_threads_are_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let status = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
    threads.map(|thread| status(thread.unwrap())).all(|status| status.contains("State:\tT"))
}

/// The backlog is the kernel's: it fills while the program does not accept.
#[test]
fn the_backlog_bounds_connections_that_are_not_accepted() {
    let diana = Diana::serve("gateway: {listen: $LISTEN, workers: 1, bounds: {backlog: 1}}\nrules: []\n");
    diana.signal(Signal::STOP);
    wait_until("all threads to stop", LONG, || all_threads_are_stopped(diana.id()).then_some(())).unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, diana.port()));
    // Linux counts from zero.
    let connections: Vec<_> =
        (0..4).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200))).collect();
    assert_eq!(connections.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, false]);
    diana.signal(Signal::CONT);
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/").status, 204);
}
