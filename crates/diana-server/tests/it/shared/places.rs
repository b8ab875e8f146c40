//! A permit of a `concurrent` limit counts for all gateways, and is released as soon as its client disconnects.

use super::fleet::{Fleet, REFUSED};
use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Then, Upstream};
use diana_testing::{RedisServer, wait_until};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// An upstream with an endless response, or with none.
fn service() -> Upstream {
    Upstream::start(|talk| {
        talk.body()?;
        match talk.seen.target() {
            "/endless" => {
                talk.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
                let piece = format!("4000\r\n{}\r\n", "x".repeat(0x4000));
                loop {
                    talk.send(&piece)?;
                }
            }
            "/silent" => {
                // The only remaining event is the end of the connection.
                let _ = talk.stream.read(&mut [0])?;
                Ok(Then::Close)
            }
            _ => talk.answer("200 OK", "", b"short"),
        }
    })
}

/// A client starts a request at a gateway, which holds the only permit until the client disconnects.
fn held_until_it_goes(begin: impl FnOnce(&Upstream, &mut Client)) {
    let (redis, upstream) = (RedisServer::start().unwrap(), service());
    // If the permit were not released, it would be lost for an hour.
    let fleet = Fleet::start(
        2,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 1, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h}}
status: 429
rules: [{{name: places, by: ip, concurrent: 1}}]
",
            upstream.url(),
            redis.url()
        ),
    );
    let [one, other] = fleet.ports()[..] else { panic!("not two") };
    let mut client = Client::connect(one);
    begin(&upstream, &mut client);
    for port in [one, other, one, other] {
        assert_eq!(get(port, "/").status, REFUSED);
    }
    drop(client);
    for port in [other, one, other] {
        wait_until("the place to come back", LONG, || (get(port, "/").status == 200).then_some(())).unwrap();
    }
    assert!(fleet.all_are_healthy(), "{:?}", fleet.links());
}

#[test]
fn a_place_comes_back_when_the_client_goes_in_the_middle_of_a_download() {
    held_until_it_goes(|_, client| {
        client.send("GET /endless HTTP/1.1\r\nhost: example.com\r\n\r\n");
        assert_eq!(client.head().unwrap().status, 200);
        assert!(!client.chunk().unwrap().is_empty());
    });
}

#[test]
fn a_place_comes_back_when_the_client_goes_before_the_answer() {
    held_until_it_goes(|upstream, client| {
        client.send("GET /silent HTTP/1.1\r\nhost: example.com\r\n\r\n");
        upstream.wait_for(1);
    });
}

/// A client that sends its next request right after each response, over the same connection and over new ones, finds
/// the permit free each time.
fn one_after_the_other(goes: impl FnOnce(&mut RedisServer)) {
    const TIMES: usize = 300;
    let (mut redis, upstream) = (RedisServer::start().unwrap(), service());
    let fleet = Fleet::start(
        1,
        &format!(
            "
gateway: {{listen: '127.0.0.1:0', workers: 2, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h}}
status: 429
rules: [{{name: places, by: ip, concurrent: 1}}]
",
            upstream.url(),
            redis.url()
        ),
    );
    fleet.until_they_see_each_other();
    let port = fleet.ports()[0];
    goes(&mut redis);
    let mut client = Client::connect(port);
    for nth in 0..TIMES {
        assert_eq!(client.get("/").status, 200, "the {nth}th over one connection");
    }
    for nth in 0..TIMES {
        assert_eq!(get(port, "/").status, 200, "the {nth}th over a new connection");
    }
}

#[test]
fn one_client_after_the_other_finds_its_place_free() {
    one_after_the_other(|_| ());
}

#[test]
fn one_client_after_the_other_finds_its_place_free_also_while_redis_is_unreachable() {
    one_after_the_other(|redis| redis.kill().unwrap());
}

#[test]
fn a_gateway_that_stops_leaves_no_place_behind() {
    let redis = RedisServer::start().unwrap();
    let may_answer = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&may_answer);
    let upstream = Upstream::start(move |talk| {
        talk.body()?;
        wait_until("the word", LONG, || told.load(Ordering::Relaxed).then_some(()))?;
        talk.answer("200 OK", "", b"late")
    });
    let rules = format!(
        "
gateway: {{listen: $LISTEN, workers: 2, upstream: '{}'}}
store: {{redis: '{}', timeout: 20s, permits_for: 1h, prefix: stops}}
rules: [{{name: places, concurrent: 20}}]
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
    program.tell_to_stop();
    may_answer.store(true, Ordering::Relaxed);
    for client in &mut clients {
        assert_eq!(client.answer().status, 200);
    }
    assert!(program.ended().success());
    let keys = redis.cli(&["keys", "stops*places*"]).unwrap();
    for key in keys.split_whitespace().filter(|key| redis.cli(&["type", key]).unwrap().trim() == "zset") {
        assert_eq!(redis.cli(&["zcard", key]).unwrap().trim(), "0", "{key}");
    }
}
