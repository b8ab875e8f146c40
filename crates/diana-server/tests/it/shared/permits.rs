//! A permit of a `concurrent` limit counts for all gateways, and is released as soon as its client disconnects.

use super::fleet::{DENIED, Fleet};
use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{AfterResponse, Upstream};
use diana_testing::{RedisServer, wait_until};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An upstream with an endless response, or with none.
fn service() -> Upstream {
    Upstream::start(|exchange| {
        exchange.body()?;
        match exchange.request.target() {
            "/endless" => {
                exchange.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
                let chunk = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
                loop {
                    exchange.send(&chunk)?;
                }
            }
            "/silent" => {
                // The only remaining event is the end of the connection.
                let _ = exchange.stream.read(&mut [0])?;
                Ok(AfterResponse::Close)
            }
            _ => exchange.respond("200 OK", "", b"short"),
        }
    })
}

/// A client starts a request at a gateway, which holds the only permit until the client disconnects.
fn holds_the_permit_until_it_disconnects(begin: impl FnOnce(&Upstream, &mut Client)) {
    let (redis, upstream) = (RedisServer::start().unwrap(), service());
    // If the permit were not released, it would be lost for an hour.
    let fleet = Fleet::start(
        2,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h}}
status: 429
rules: [{{name: permits, by: ip, concurrent: 1}}]
",
            upstream.url(),
            redis.url()
        ),
    );
    let [one, other] = fleet.ports()[..] else { panic!("expected two gateways") };
    let mut client = Client::connect(one);
    begin(&upstream, &mut client);
    for port in [one, other, one, other] {
        assert_eq!(get(port, "/").status, DENIED);
    }
    drop(client);
    for port in [other, one, other] {
        wait_until("the permit to be released", LONG, || (get(port, "/").status == 200).then_some(())).unwrap();
    }
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
}

#[test]
fn a_permit_is_released_when_the_client_disconnects_during_a_download() {
    holds_the_permit_until_it_disconnects(|_, client| {
        client.send("GET /endless HTTP/1.1\r\nhost: example.com\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        assert!(!client.chunk().unwrap().is_empty());
    });
}

#[test]
fn a_permit_is_released_when_the_client_disconnects_before_the_response() {
    holds_the_permit_until_it_disconnects(|upstream, client| {
        client.send("GET /silent HTTP/1.1\r\nhost: example.com\r\n\r\n");
        upstream.wait_for(1);
    });
}

/// A client that sends its next request right after each response, over the same connection and over new ones, finds
/// the permit free each time.
fn sequential_requests(fail: impl FnOnce(&mut RedisServer)) {
    const REQUESTS: usize = 300;
    let (mut redis, upstream) = (RedisServer::start().unwrap(), service());
    let fleet = Fleet::start(
        1,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 2, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h}}
status: 429
rules: [{{name: permits, by: ip, concurrent: 1}}]
",
            upstream.url(),
            redis.url()
        ),
    );
    fleet.until_all_are_registered();
    let port = fleet.ports()[0];
    fail(&mut redis);
    let mut client = Client::connect(port);
    for number in 0..REQUESTS {
        assert_eq!(client.get("/").status, 200, "request {number} over one connection");
    }
    for number in 0..REQUESTS {
        assert_eq!(get(port, "/").status, 200, "request {number} over a new connection");
    }
}

#[test]
fn sequential_requests_find_the_permit_released() {
    sequential_requests(|_| ());
}

#[test]
fn sequential_requests_find_the_permit_released_while_redis_is_unreachable() {
    sequential_requests(|redis| redis.kill().unwrap());
}

#[test]
fn a_stopping_gateway_releases_all_permits() {
    let redis = RedisServer::start().unwrap();
    let responds = Arc::new(AtomicBool::new(false));
    let may_respond = Arc::clone(&responds);
    let upstream = Upstream::start(move |exchange| {
        exchange.body()?;
        wait_until("permission to respond", LONG, || may_respond.load(Ordering::Relaxed).then_some(()))?;
        exchange.respond("200 OK", "", b"late")
    });
    let rules = format!(
        "
gateway: {{listen: $LISTEN, workers: 2, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h, prefix: stops}}
rules: [{{name: permits, concurrent: 20}}]
",
        upstream.url(),
        redis.url()
    );
    let mut program = Diana::serve(&rules);
    let mut clients = (0..20).map(|_| Client::connect(program.port())).collect::<Vec<_>>();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    }
    upstream.wait_for(20);
    program.request_stop();
    responds.store(true, Ordering::Relaxed);
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    assert!(program.wait_for_exit().success());
    let keys = redis.cli(&["keys", "stops*permits*"]).unwrap();
    for key in keys.split_whitespace().filter(|key| redis.cli(&["type", key]).unwrap().trim() == "zset") {
        assert_eq!(redis.cli(&["zcard", key]).unwrap().trim(), "0", "{key}");
    }
}
