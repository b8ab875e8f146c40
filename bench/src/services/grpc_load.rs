//! Load by gRPC: calls in flight on one connection.

use crate::messages::{
    self, Descriptor, Entry, RateLimitRequest, RateLimitResponse, ThrottleRequest, ThrottleResponse,
};
use diana_bench::now;
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Endpoint;

/// Asks Envoy's rate limit service for `time`. Returns how many calls were answered.
pub(crate) fn rate_limits(port: u16, in_flight: usize, time: Duration) -> u64 {
    let entry = |key: &str, value: String| Entry { key: key.to_owned(), value };
    let request = |number| {
        let entries = vec![entry("plan", "free".to_owned()), entry("api_key", format!("key-{number}"))];
        RateLimitRequest { domain: "bench".to_owned(), descriptors: vec![Descriptor { entries }] }
    };
    let is_allowed = |response: &RateLimitResponse| response.overall_code == 1;
    run(port, in_flight, time, messages::SHOULD_RATE_LIMIT, request, is_allowed)
}

/// Asks the service of throttlecrab for `time`. Returns how many calls were answered.
pub(crate) fn throttles(port: u16, in_flight: usize, time: Duration) -> u64 {
    let request = |number| ThrottleRequest {
        key: format!("key-{number}"),
        max_burst: 1_000_000,
        count_per_period: 1_000_000,
        period: 1,
        quantity: 1,
    };
    run(port, in_flight, time, messages::THROTTLE, request, |response: &ThrottleResponse| response.allowed)
}

/// Keeps `in_flight` calls in flight for `time`, each with its own request. Returns how many were answered.
fn run<Request, Response>(
    port: u16,
    in_flight: usize,
    time: Duration,
    method: &'static str,
    request: impl Fn(usize) -> Request,
    is_allowed: fn(&Response) -> bool,
) -> u64
where
    Request: prost::Message + Clone + 'static,
    Response: prost::Message + Default + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let channel = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).unwrap().tcp_nodelay(true);
        let channel = channel.connect().await.unwrap();
        let start = now();
        let calls = (0..in_flight).map(|number| {
            let (mut client, request) = (Grpc::new(channel.clone()), request(number));
            tokio::spawn(async move {
                let mut answered = 0_u64;
                while start.elapsed() < time {
                    client.ready().await.unwrap();
                    let path = PathAndQuery::from_static(method);
                    let codec = tonic_prost::ProstCodec::<Request, Response>::default();
                    let response = client.unary(tonic::Request::new(request.clone()), path, codec).await.unwrap();
                    assert!(is_allowed(response.get_ref()), "denied by {method}");
                    answered += 1;
                }
                answered
            })
        });
        let mut answered = 0;
        for call in calls.collect::<Vec<_>>() {
            answered += call.await.unwrap();
        }
        answered
    })
}
