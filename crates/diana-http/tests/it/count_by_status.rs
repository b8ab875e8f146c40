//! Rules that count by the status of the response, in the filter and in the tower layer.

use crate::support::{client, denied, filter, get, granted};
use bytes::Bytes;
use diana_http::{ClientAddress, RateLimitLayer, ThrottledBody};
use http::{Request, Response};
use http_body_util::{Empty, Full};
use std::convert::Infallible;
use std::net::IpAddr;
use tower::{Layer, ServiceExt, service_fn};

const RULES: &str = "rules: [{name: failed, by: ip, total: 2, count: {status: 401}}, \
                     {name: quota, by: ip, total: 4, count: {status: 5xx, refund: true}}]";

fn response(status: u16) -> Response<Empty<&'static [u8]>> {
    Response::builder().status(status).body(Empty::new()).unwrap()
}

#[test]
fn the_head_of_the_response_is_charged_and_reported() {
    let (filter, _) = filter(RULES);
    for (status, header) in [
        (200, "\"failed\";r=2, \"quota\";r=3"),
        (401, "\"failed\";r=1, \"quota\";r=2"),
        (500, "\"failed\";r=1, \"quota\";r=2"),
        (401, "\"failed\";r=0, \"quota\";r=1"),
    ] {
        let response = granted(filter.check(&get("/"), client())).finish(response(status));
        assert_eq!(response.headers()["ratelimit"], header, "{status}");
    }
    assert_eq!(denied(filter.check(&get("/"), client())).verdict().denied_by().unwrap().name, "failed");
}

#[test]
fn a_response_to_another_proxy_is_no_outcome() {
    let rules = "rules: [{name: failed, total: 1, count: {status: 2xx}}, \
                 {name: quota, total: 2, count: {status: 2xx, refund: true}}]";
    let (filter, _) = filter(rules);
    for _ in 0..2 {
        drop(granted(filter.check(&get("/"), client())).finish_check(response(200)));
    }
    assert_eq!(denied(filter.check(&get("/"), client())).verdict().denied_by().unwrap().name, "quota");
}

#[test]
fn a_request_without_a_response_is_not_charged() {
    let (filter, _) = filter(RULES);
    for _ in 0..3 {
        let mut permit = granted(filter.check(&get("/"), client()));
        permit.begin();
        drop(permit);
    }
    let response = granted(filter.check(&get("/"), client())).finish(response(200));
    assert_eq!(response.headers()["ratelimit"], "\"failed\";r=2, \"quota\";r=0");
}

#[tokio::test]
async fn the_layer_denies_after_failed_responses() {
    let (filter, _) = filter("status: 429\nrules: [{name: failed, by: ip, total: 2, count: {status: [401, 403]}}]");
    let server = service_fn(|request: Request<ThrottledBody<Full<Bytes>>>| {
        let status = request.uri().path().trim_start_matches('/').parse::<u16>().unwrap();
        std::future::ready(Ok::<_, Infallible>(
            Response::builder().status(status).body(Full::<Bytes>::default()).unwrap(),
        ))
    });
    let service = RateLimitLayer::of(filter).layer(server);
    for (ip, path, status) in
        [(1, 200, 200), (1, 401, 401), (1, 500, 500), (1, 403, 403), (1, 200, 429), (2, 200, 200), (1, 401, 429)]
    {
        let mut request = Request::get(format!("/{path}")).body(Full::<Bytes>::default()).unwrap();
        request.extensions_mut().insert(ClientAddress(IpAddr::from([203, 0, 113, ip])));
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status, "{ip} {path}");
    }
}
