//! `bounds.memory`: what the clients of all services may use together, whatever they send and do not finish.

use super::client::{Envoy, descriptor};
use super::messages::Code;
use super::resp_client::RespClient;
use crate::support::http2::{self, request};
use crate::support::program::{Diana, LONG};
use bytes::Bytes;
use diana_testing::wait_until;
use futures_util::StreamExt;
use futures_util::stream::{FuturesUnordered, iter, pending};
use http_body_util::StreamBody;
use http_body_util::combinators::BoxBody;
use hyper::body::Frame;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const BOUND: u64 = 32 << 20;

fn serve(bounds: &str) -> Diana {
    Diana::serve(&format!(
        "
{bounds}
services: {{envoy: $LISTEN, resp: $TLS, workers: 1{}}}
rules: [{{name: each, by: descriptor(k), limit: 1/h}}]
",
        if bounds.is_empty() { ", bounds: {memory: 32MiB}" } else { "" }
    ))
}

/// Fails if the program takes more than a fifth above the bound.
#[track_caller]
fn assert_bounded(diana: &Diana, before: u64) {
    let growth = diana.own_memory().saturating_sub(before);
    assert!(growth <= BOUND + BOUND / 5, "{} KiB", growth >> 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_messages_are_bounded_and_the_newest_is_refused() {
    let diana = serve("gateway: {listen: 127.0.0.1:0, bounds: {memory: 32MiB}}");
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    let before = diana.own_memory();
    let mut sender = http2::connect(diana.port()).await;
    let part = Bytes::from([&[0, 0, 3, 0xe8, 0][..], &vec![b'x'; 256_000 - 1]].concat());
    let calls = (0..256).map(|_| {
        let body = StreamBody::new(iter([Ok(Frame::data(part.clone()))]).chain(pending()));
        let call = request("POST", &format!("http://diana{PATH}")).header("content-type", "application/grpc");
        sender.send_request(call.header("te", "trailers").body(BoxBody::new(body)).unwrap())
    });
    let mut calls = calls.collect::<FuturesUnordered<_>>();
    // Each holds four parts of 64 KiB and 8 KiB, so at most 124 wait for the rest of their message.
    for _ in 0..256 - 124 {
        let refused = tokio::time::timeout(LONG, calls.next()).await.expect("it is not refused").unwrap().unwrap();
        assert_eq!(refused.headers()["grpc-status"], "8", "{refused:?}");
    }
    assert_bounded(&diana, before);
    // Once they have ended, there is room again.
    drop((calls, sender));
    let huge = || descriptor(&[("k", &"b".repeat(200_000))]);
    let deadline = tokio::time::Instant::now() + LONG;
    while envoy.try_codes(huge()).await.is_none() {
        assert!(tokio::time::Instant::now() < deadline, "the memory is not released");
        tokio::task::yield_now().await;
    }
}

#[test]
fn transactions_are_bounded_and_the_newest_is_aborted() {
    let diana = serve("");
    let echo = format!("ECHO {}", "x".repeat(60_000));
    let before = diana.own_memory();
    let mut clients = (0..20).map(|_| RespClient::connect(diana.tls_port())).collect::<Vec<_>>();
    let mut aborted = 0;
    for client in &mut clients {
        assert_eq!(client.ask("MULTI"), "OK");
        let mut replies = (0..60).map(|_| client.ask(&echo));
        if let Some(refused) = replies.find(|reply| reply != "QUEUED") {
            assert_eq!(refused, "OOM `bounds.memory` is used up by other clients");
            aborted += 1;
        }
    }
    // Each may double the memory of 3.6 MB.
    assert!((8..=14).contains(&aborted), "{aborted}");
    assert_bounded(&diana, before);
    assert!(
        clients.iter_mut().map(|client| client.ask("EXEC")).filter(|reply| reply.starts_with("EXECABORT")).count()
            == aborted
    );
    assert_eq!(clients[19].ask("PING"), "PONG", "the connection stays open");
}

#[test]
fn unfinished_commands_are_bounded_and_the_newest_is_refused() {
    let diana = serve("");
    let command = format!("*5\r\n{}$60000\r\nxx", format!("$60000\r\n{}\r\n", "x".repeat(60_000)).repeat(4));
    let before = diana.own_memory();
    let mut clients = (0..300).map(|_| RespClient::connect(diana.tls_port())).collect::<Vec<_>>();
    // One that is refused may be closed before it has sent everything.
    clients.iter_mut().for_each(|client| drop(client.try_send(&command)));
    let open = || (diana.metric("diana_service_connections{service=\"resp\"}") < 150.0).then_some(());
    wait_until("connections to be closed", LONG, open).unwrap();
    assert_bounded(&diana, before);
    let mut last = RespClient::connect(diana.tls_port());
    assert_eq!(last.ask("PING"), "PONG", "a short command has room");
}
