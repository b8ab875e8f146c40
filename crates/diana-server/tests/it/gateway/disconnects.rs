//! Clients that disconnect before they get a response, in ways that reading their connection does not detect.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::wait_until;
use socket2::SockRef;
use std::time::Duration;

/// An upstream that responds to `/free`, and holds any other request until its connection is closed.
fn holding() -> Upstream {
    Upstream::start(|exchange| {
        if exchange.request.target() == "/free" {
            return exchange.respond("200 OK", "", b"");
        }
        while std::io::Read::read(&mut exchange.stream, &mut [0; 4096])? > 0 {}
        Ok(AfterResponse::Close)
    })
}

/// Limits `/held` to one request at a time, and one more in the queue.
fn gateway_to(upstream: &Upstream) -> Diana {
    Diana::serve(&format!(
        "
gateway: {{listen: $LISTEN, workers: 1, upstream: '{}', timeouts: {{response: 300s, body: 300s}}}}
rules: [{{name: one, match: {{path: /held}}, concurrent: 1, wait: 300s, queue: 1, status: 429}}]
",
        upstream.url()
    ))
}

/// Returns a client whose connection has been accepted.
fn accepted(diana: &Diana) -> Client {
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/free").status, 200);
    client
}

fn reset(client: Client) {
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Asks for the permit or a slot in the queue. Returns the waiting client, or `None` if both are taken.
fn try_hold(diana: &Diana) -> Option<Client> {
    let mut client = Client::connect(diana.port());
    client.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    client.send("GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
    client.head().is_none().then_some(client)
}

const GET: &str = "GET /held HTTP/1.1\r\nhost: a\r\n\r\n";
/// A body of which the gateway reads a part. The rest stays in the socket; if it did not fit, the end after it would not
/// arrive.
const POST: &str = "POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000\r\n\r\n";

/// Returns the bytes that a client sends before it disconnects: the start of a next request, and an unread body.
fn requests() -> [String; 2] {
    [format!("{GET}G"), format!("{POST}{}", "x".repeat(50_000))]
}

#[test]
fn a_disconnect_with_unread_bytes_releases_the_permit() {
    for request in requests() {
        for leave in [reset, drop] {
            let upstream = holding();
            let diana = gateway_to(&upstream);
            let mut client = accepted(&diana);
            client.send(&request);
            upstream.wait_for(2);
            leave(client);
            // The upstream connection is closed, since the client has disconnected.
            upstream.wait_for_closed(1);
            assert!(try_hold(&diana).is_some());
            upstream.wait_for(3);
        }
    }
}

#[test]
fn a_disconnect_with_unread_bytes_frees_the_queue_slot() {
    for request in requests() {
        for leave in [reset, drop] {
            let upstream = holding();
            let diana = gateway_to(&upstream);
            let mut first = accepted(&diana);
            let mut queued = accepted(&diana);
            first.send(GET);
            upstream.wait_for(3);
            queued.send(&request);
            let is_full = || try_hold(&diana).is_none().then_some(());
            wait_until("the queue to be full", LONG, is_full).unwrap();
            leave(queued);
            wait_until("a slot in the queue", LONG, || try_hold(&diana)).unwrap();
            assert_eq!(get(diana.port(), "/free").status, 200);
        }
    }
}

/// Aborts requests in rapid succession: each client sends a request and disconnects at once.
fn abort(diana: &Diana, times: usize) {
    for _ in 0..times {
        let mut client = Client::connect(diana.port());
        client.stream().set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        client.send(GET);
        let _ = client.head();
    }
}

/// Returns an upstream that holds `/held` until it is released, and then responds with a large body.
fn gated() -> (std::sync::mpsc::Sender<()>, Upstream) {
    let (go_on, gate) = std::sync::mpsc::channel::<()>();
    let gate = parking_lot::Mutex::new(gate);
    let upstream = Upstream::start(move |exchange| {
        if exchange.request.target() != "/held" {
            return exchange.respond("200 OK", "", b"");
        }
        let _ = gate.lock().recv();
        exchange.respond("200 OK", "", &vec![b'x'; 4 << 20])
    });
    (go_on, upstream)
}

fn limited_to_one(upstream: &Upstream, concurrent: &str) -> Diana {
    Diana::serve(&format!(
        "
gateway: {{listen: $LISTEN, workers: 1, upstream: '{}', timeouts: {{response: 300s, body: 300s}}}}
rules: [{{name: one, match: {{path: /held}}, concurrent: {concurrent}, status: 429}}]
",
        upstream.url()
    ))
}

/// Regression: with `concurrent: 5`, aborted requests let 568 requests run at the upstream.
#[test]
fn until_upstream_done_holds_the_permit_after_a_disconnect() {
    let (go_on, upstream) = gated();
    let diana = limited_to_one(&upstream, "{limit: 1, until: upstream_done}");
    abort(&diana, 20);
    assert_eq!(upstream.count(), 1);
    // The response is read to its end, and the permit is released.
    go_on.send(()).unwrap();
    let is_free = || {
        let mut client = Client::connect(diana.port());
        client.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        client.send(GET);
        client.head().is_none().then_some(client)
    };
    let mut second = wait_until("the permit to be released", LONG, is_free).unwrap();
    go_on.send(()).unwrap();
    second.stream().set_read_timeout(Some(LONG)).unwrap();
    let response = second.response();
    assert_eq!((response.status, response.body.len()), (200, 4 << 20));
    // Both used the same connection: the first response was read to its end.
    assert_eq!((upstream.count(), upstream.connections()), (2, 1));
}

/// A client that disconnects during a response holds its permit until the whole response has been received.
#[test]
fn until_upstream_done_reads_the_rest_of_the_response() {
    let (go_on, upstream) = gated();
    let diana = limited_to_one(&upstream, "{limit: 1, until: upstream_done}");
    go_on.send(()).unwrap();
    let mut client = Client::connect(diana.port());
    client.send(GET);
    assert_eq!(client.head().unwrap().status, 200);
    drop(client);
    go_on.send(()).unwrap();
    let again = || {
        let mut client = Client::connect(diana.port());
        client.send(GET);
        Some(client.response()).filter(|response| response.status == 200)
    };
    let response = wait_until("the permit to be released", LONG, again).unwrap();
    assert_eq!(response.body.len(), 4 << 20);
    assert_eq!(upstream.connections(), 1);
}

/// The default protects clients from each other, and the gateway; not the upstream.
#[test]
fn by_default_a_disconnect_releases_the_permit() {
    let (go_on, upstream) = gated();
    let diana = limited_to_one(&upstream, "1");
    let more = || {
        abort(&diana, 1);
        (upstream.count() > 2).then_some(())
    };
    wait_until("the permit to be released", LONG, more).unwrap();
    drop(go_on);
}
