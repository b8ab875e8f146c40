//! Rules that count by the status of the response, through the gateway with a real upstream.

use crate::support::client::{Client, ClientResponse, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::wait_until;

/// An upstream that responds with the status in the path, and holds `/hold` until its connection is closed.
pub(crate) fn statuses() -> Upstream {
    Upstream::start(|exchange| {
        exchange.body()?;
        match exchange.request.target().rsplit('/').next() {
            Some("hold") => {
                while std::io::Read::read(&mut exchange.stream, &mut [0; 4096])? > 0 {}
                Ok(AfterResponse::Close)
            }
            status => exchange.respond(&format!("{} Status", status.unwrap_or("200")), "", b"body"),
        }
    })
}

fn gateway_to(upstream: &str, rules: &str) -> Diana {
    Diana::serve(&format!(
        "
gateway: {{listen: $LISTEN, workers: 1, upstream: '{upstream}'}}
status: 429
rules: {rules}
"
    ))
}

/// Returns the permits that remain after a response, by its headers.
fn remaining(response: &ClientResponse) -> String {
    let header = response.header("ratelimit").unwrap();
    header.split(';').find_map(|part| part.strip_prefix("r=")).unwrap().to_owned()
}

#[test]
fn failed_logins_are_denied_and_others_are_not_counted() {
    let upstream = statuses();
    let rules = "[{name: failed, by: ip, total: 3, count: {status: [401, 403]}}]";
    let diana = gateway_to(&upstream.url(), rules);
    let mut client = Client::connect(diana.port());
    let left = [(200, "3"), (401, "2"), (404, "2"), (500, "2"), (403, "1"), (200, "1"), (401, "0")];
    for (status, left) in left {
        let response = client.get(&format!("/{status}"));
        assert_eq!((response.status, &*remaining(&response)), (status, left));
    }
    for _ in 0..5 {
        let denied = client.get("/401");
        assert_eq!((denied.status, &*remaining(&denied)), (429, "0"));
    }
    assert_eq!(upstream.count(), left.len(), "denied requests are not forwarded");
    let key = diana.admin("/peek?rule=failed&key=127.0.0.1");
    assert!(key.text().contains("\"remaining\":0"), "{}", key.text());
}

#[test]
fn a_refund_keeps_the_quota_for_requests_that_were_answered() {
    let upstream = statuses();
    let diana = gateway_to(&upstream.url(), "[{name: quota, total: 2, count: {status: 5xx, refund: true}}]");
    for (path, status) in [("/500", 500), ("/503", 503), ("/200", 200), ("/599", 599), ("/404", 404), ("/500", 429)] {
        assert_eq!(get(diana.port(), path).status, status);
    }
}

#[test]
fn responses_of_the_gateway_itself_count_by_their_status() {
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = refused.local_addr().unwrap();
    drop(refused);
    let diana = gateway_to(&format!("http://{address}"), "[{name: failures, total: 2, count: {status: 502}}]");
    for status in [502, 502, 429, 429] {
        assert_eq!(get(diana.port(), "/").status, status);
    }
}

#[test]
fn a_client_that_disconnects_before_the_response_is_not_counted_and_not_refunded() {
    let upstream = statuses();
    let rules = "[{name: failed, total: 1, count: {status: [4xx, 5xx]}}, \
                 {name: quota, total: 2, count: {status: [4xx, 5xx], refund: true}}]";
    let diana = gateway_to(&upstream.url(), rules);
    let mut client = Client::connect(diana.port());
    client.send("GET /hold HTTP/1.1\r\nhost: a\r\n\r\n");
    upstream.wait_for(1);
    drop(client);
    upstream.wait_for_closed(1);
    wait_until("the request to end", LONG, || (diana.metric("diana_connections") == 0.0).then_some(())).unwrap();
    let response = get(diana.port(), "/200");
    assert_eq!(response.status, 200, "the first was not counted as failed");
    assert_eq!(get(diana.port(), "/200").status, 429, "both used up the quota");
}

/// Requests that are in flight together pass the look together: at most the limit and these are counted.
#[test]
fn the_bound_is_the_limit_and_the_requests_in_flight() {
    const IN_FLIGHT: usize = 5;
    let gate = std::sync::Arc::new(std::sync::Barrier::new(IN_FLIGHT));
    let upstream = Upstream::start(move |exchange| {
        exchange.body()?;
        // All of them are in the upstream before the first is answered.
        gate.wait();
        exchange.respond("401 Unauthorized", "", b"")
    });
    let diana = gateway_to(&upstream.url(), "[{name: failed, total: 2, count: {status: 401}}]");
    let mut clients = (0..IN_FLIGHT).map(|_| Client::connect(diana.port())).collect::<Vec<_>>();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 401);
    }
    for _ in 0..IN_FLIGHT {
        assert_eq!(get(diana.port(), "/").status, 429);
    }
    assert_eq!(upstream.count(), IN_FLIGHT);
}
