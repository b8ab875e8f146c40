//! Bounds of the service `envoy`: a client can hold neither memory nor streams for long.

use super::client::{Envoy, descriptor, shop};
use super::messages::Code;
use crate::support::frames::{DATA, END_HEADERS, Frames, HEADERS, RST_STREAM, SETTINGS, block};
use crate::support::http2::{self, full, request};
use crate::support::program::{Diana, LONG};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{iter, pending};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;

const RULES: &str = "services: {envoy: $LISTEN}\nrules: [{name: each, by: descriptor(k), limit: 1/h}]";
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const REFUSED_STREAM: u32 = 7;

fn call_head() -> Vec<u8> {
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", "diana"), (":path", PATH)];
    block(&[&fields[..], &[("content-type", "application/grpc"), ("te", "trailers")]].concat())
}

/// A message with its prefix.
fn message() -> Vec<u8> {
    let message = shop([descriptor(&[("k", "a")])]).encode_to_vec();
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

#[test]
fn a_connection_has_at_most_1024_calls_at_once() {
    let diana = Diana::serve(RULES);
    let mut frames = Frames::connect(diana.port(), &[]);
    let settings = frames.next_of(SETTINGS).unwrap().payload;
    assert!(settings.chunks(6).any(|setting| setting == [0, 3, 0, 0, 4, 0]), "{settings:?}");
    let head = call_head();
    for number in 0..1_024 {
        frames.send(HEADERS, END_HEADERS, 2 * number + 1, &head).unwrap();
    }
    frames.wait_for_peer();
    frames.send(HEADERS, END_HEADERS, 2 * 1_024 + 1, &head).unwrap();
    let refused = frames.next_of(RST_STREAM).unwrap();
    assert_eq!((refused.kind, refused.stream), (RST_STREAM, 2 * 1_024 + 1), "{refused:?}");
    assert_eq!(refused.payload, REFUSED_STREAM.to_be_bytes());
    // The others are served.
    frames.send(DATA, 1, 1, &message()).unwrap();
    let answered = frames.next_of(HEADERS).unwrap();
    assert_eq!((answered.kind, answered.stream), (HEADERS, 1), "{answered:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_message_is_not_waited_for() {
    let diana = Diana::serve(&format!("gateway: {{listen: $TLS, timeouts: {{body: 1s}}}}\n{RULES}"));
    let mut sender = http2::connect(diana.port()).await;
    let all = message();
    for sent in [&[][..], &all[..3], &all[..all.len() - 1], &[0, 0, 3, 0, 0, 1]] {
        let data = Frame::data(Bytes::copy_from_slice(sent));
        let body = BoxBody::new(StreamBody::new(iter([Ok(data)]).chain(pending())));
        let call = request("POST", &format!("http://diana{PATH}")).header("content-type", "application/grpc");
        let response = sender.send_request(call.header("te", "trailers").body(body).unwrap());
        let response = tokio::time::timeout(LONG, response).await.expect("it is waited for").unwrap();
        let status = response.headers().get("grpc-status").map(|status| status.to_str().unwrap());
        assert_eq!(status, Some("4"), "{sent:?}: {response:?}");
    }
    // The connection is still served.
    let envoy = Envoy::connect(diana.port()).await;
    assert_eq!(envoy.codes::<2>(&descriptor(&[("k", "a")])).await, [Code::Ok, Code::OverLimit]);
    let failed = diana.metric("diana_service_requests_total{service=\"envoy\",outcome=\"denied\"}");
    assert_eq!(failed, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_call_have_at_most_64_kib() {
    let diana = Diana::serve(RULES);
    let mut sender = http2::connect(diana.port()).await;
    // Envoy passes on headers for tracing, and accepts 60 KiB by default.
    for (length, is_accepted) in [(10 << 10, true), (60 << 10, true), (70 << 10, false), (1, true)] {
        let call = request("POST", &format!("http://diana{PATH}")).header("content-type", "application/grpc");
        let call = call.header("te", "trailers").header("tracestate", "a".repeat(length));
        let response = sender.send_request(call.body(full(message())).unwrap()).await.unwrap();
        let (head, body) = response.into_parts();
        let trailers = body.collect().await.ok().and_then(|body| body.trailers().cloned()).unwrap_or_default();
        let status = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
        assert_eq!(status.is_some_and(|status| status == "0"), is_accepted, "{length}: {head:?}");
    }
}
