//! Clients that leave before they are answered, in ways that reading their connection does not show.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Then, Upstream};
use diana_testing::wait_until;
use socket2::SockRef;
use std::time::Duration;

/// A service that answers `/free`, and holds any other request until its connection is closed.
fn holding() -> Upstream {
    Upstream::start(|talk| {
        if talk.seen.target() == "/free" {
            return talk.answer("200 OK", "", b"");
        }
        while std::io::Read::read(&mut talk.stream, &mut [0; 4096])? > 0 {}
        Ok(Then::Close)
    })
}

/// One request at a time for `/held`, and one more in the queue.
fn before(upstream: &Upstream) -> Diana {
    Diana::serve(&format!(
        "
gateway: {{listen: $LISTEN, workers: 1, upstream: '{}', timeouts: {{response: 300s, body: 300s}}}}
rules: [{{name: one, match: {{path: /held}}, concurrent: 1, wait: 300s, queue: 1, status: 429}}]
",
        upstream.url()
    ))
}

/// A client whose connection is known to be accepted.
fn accepted(diana: &Diana) -> Client {
    let mut client = Client::connect(diana.port());
    assert_eq!(client.get("/free").status, 200);
    client
}

fn reset(client: Client) {
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Asks for the place or a slot in the queue; `false` if both are taken.
fn is_let_in(diana: &Diana) -> Option<Client> {
    let mut client = Client::connect(diana.port());
    client.stream().set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    client.send("GET /held HTTP/1.1\r\nhost: a\r\n\r\n");
    client.head().is_none().then_some(client)
}

const GET: &str = "GET /held HTTP/1.1\r\nhost: a\r\n\r\n";
/// A body of which hyper reads a part, and the rest stays in the socket.
const POST: &str = "POST /held HTTP/1.1\r\nhost: a\r\ncontent-length: 10000000\r\n\r\n";

/// What a client sends before it leaves: a beginning of a next request, and a body that nobody reads.
fn requests() -> [String; 2] {
    [format!("{GET}G"), format!("{POST}{}", "x".repeat(200_000))]
}

#[test]
fn a_client_that_leaves_with_unread_bytes_gives_up_its_place() {
    for request in requests() {
        for leave in [reset, drop] {
            let upstream = holding();
            let diana = before(&upstream);
            let mut client = accepted(&diana);
            client.send(&request);
            upstream.wait_for(2);
            leave(client);
            // Nobody waits for the answer, so the upstream is let go.
            upstream.wait_for_closed(1);
            assert!(is_let_in(&diana).is_some());
            upstream.wait_for(3);
        }
    }
}

#[test]
fn a_client_that_leaves_with_unread_bytes_gives_up_its_slot_in_the_queue() {
    for request in requests() {
        for leave in [reset, drop] {
            let upstream = holding();
            let diana = before(&upstream);
            let mut first = accepted(&diana);
            let mut queued = accepted(&diana);
            first.send(GET);
            upstream.wait_for(3);
            queued.send(&request);
            let is_full = || is_let_in(&diana).is_none().then_some(());
            wait_until("the queue to be full", LONG, is_full).unwrap();
            leave(queued);
            wait_until("a slot in the queue", LONG, || is_let_in(&diana)).unwrap();
            assert_eq!(get(diana.port(), "/free").status, 200);
        }
    }
}
