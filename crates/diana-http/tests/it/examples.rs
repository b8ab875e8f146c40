//! The examples, each started and called over TCP.

#[cfg(feature = "macros")]
#[path = "../../examples/axum_program.rs"]
#[allow(dead_code, reason = "the example\'s `main`")]
mod axum_program;
#[path = "../../examples/axum_server.rs"]
#[allow(dead_code, reason = "the example\'s `main`")]
mod axum_server;
#[path = "../../examples/hyper_server.rs"]
#[allow(dead_code, reason = "the example\'s `main`")]
mod hyper_server;
#[path = "../../examples/tonic_server.rs"]
#[allow(dead_code, reason = "the example\'s `main`")]
mod tonic_server;

use bytes::Bytes;
use diana::rules::{Document, Registry, RuleFile};
use http::Response;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use prost::Message;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn file(rules: &str) -> RuleFile {
    RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default()).unwrap_or_else(|error| panic!("{error}"))
}

async fn get(url: &str) -> Response<Bytes> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let (head, body) = client.get(url.parse().unwrap()).await.unwrap().into_parts();
    Response::from_parts(head, body.collect().await.unwrap().to_bytes())
}

/// Calls a server that allows three requests per client.
async fn check_three_requests_per_client(url: &str) {
    for remaining in ["2", "1", "0"] {
        let response = get(url).await;
        assert_eq!((response.status().as_u16(), &response.body()[..]), (200, &b"hello\n"[..]));
        let field = response.headers()["ratelimit"].to_str().unwrap();
        assert!(field.starts_with(&format!("\"each-client\";r={remaining};t=")), "{field}");
    }
    let denied = get(url).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    assert!(denied.headers().contains_key("retry-after"));
    let problem: serde_json::Value = serde_json::from_slice(denied.body()).unwrap();
    assert_eq!(problem["violated-policies"][0], "each-client", "{problem}");
}

#[cfg(feature = "macros")]
#[tokio::test]
async fn an_axum_program_limits_clients_by_rules_and_a_handler_by_its_attribute() {
    // No other test of this program installs limits without a name.
    diana::limited::Limits::new().with_clock(diana::ManualClock::new()).install();
    let (listener, address) = listener().await;
    let app = axum_program::app().unwrap().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async { axum::serve(listener, app).await });

    let first = get(&format!("http://{address}/search/7")).await;
    assert_eq!((first.status().as_u16(), &first.body()[..]), (200, &b"nothing found for user 7\n"[..]));
    let field = first.headers()["ratelimit"].to_str().unwrap();
    assert!(field.starts_with("\"each-client\";r=4;t="), "{field}");

    let denied = get(&format!("http://{address}/search/7")).await;
    assert_eq!((denied.status().as_u16(), &denied.headers()["retry-after"]), (429, &"1".parse().unwrap()));
    assert_eq!(denied.headers()["content-type"], "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(denied.body()).unwrap();
    assert_eq!(problem["violated-policies"][0], "search", "{problem}");
    assert_eq!(get(&format!("http://{address}/search/8")).await.status(), 200);
}

#[tokio::test]
async fn axum() {
    let (listener, address) = listener().await;
    tokio::spawn(axum_server::serve(listener, axum_server::app().unwrap()));
    check_three_requests_per_client(&format!("http://{address}/")).await;
}

#[tokio::test]
async fn hyper() {
    let (listener, address) = listener().await;
    tokio::spawn(hyper_server::serve(listener, file(hyper_server::RULES)));
    check_three_requests_per_client(&format!("http://{address}/")).await;
}

#[derive(Clone, PartialEq, Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[tokio::test]
async fn tonic() {
    let (listener, address) = listener().await;
    tokio::spawn(tonic_server::serve(listener, file(tonic_server::RULES)));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    let mut client = HealthClient::new(channel);
    for _ in 0..2 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
    let denied = client.check(HealthCheckRequest::default()).await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::ResourceExhausted, "{denied}");
    let status = RpcStatus::decode(denied.details()).unwrap();
    assert_eq!(status.code, 8);
    let info = status.details.iter().find(|any| any.type_url == "type.googleapis.com/google.rpc.RetryInfo").unwrap();
    let delay = RetryInfo::decode(&info.value[..]).unwrap().retry_delay.unwrap();
    // Two per hour: the next permit is available within half an hour.
    let delay = Duration::new(delay.seconds.try_into().unwrap(), delay.nanos.try_into().unwrap());
    assert!(delay > Duration::ZERO && delay <= Duration::from_secs(1_800), "{delay:?}");
}
