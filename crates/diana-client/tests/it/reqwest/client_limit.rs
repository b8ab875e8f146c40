//! `ClientRateLimitLayer`: calls wait until they are granted, and release their permits.

use super::server::TestServer;
use super::virtual_time::{VirtualTime, at, call, plain};
use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, KeyedLimiter, Limiter, Quota, Retry, TokioClock};
use diana_client::{ClientRateLimitError, ClientRateLimitLayer, RequestHost};
use diana_http::Filter;
use reqwest_middleware::{ClientBuilder, Error};
use std::time::Duration;
use tower::{ServiceBuilder, ServiceExt};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn partner(text: &str) -> ClientRateLimitLayer<Limiter> {
    ClientRateLimitLayer::new("partner", Limiter::new(quota(text)).with_clock(TokioClock::new()))
}

#[tokio::test(start_paused = true)]
async fn calls_are_sent_at_the_rate_in_fifo_order() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = time.client(|builder| builder.with(partner("1/s burst 2")));
    let calls = ["/1", "/2", "/3", "/4"].map(|path| call(&client, &server.url(path)));
    let [first, second, third, fourth] = calls;
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (200, 200));
    time.advance(999).await;
    assert_eq!(time.sent(), [at(0, "/1"), at(0, "/2")]);
    time.advance(1).await;
    assert_eq!(third.await.unwrap().unwrap(), 200);
    time.advance(1_000).await;
    assert_eq!(fourth.await.unwrap().unwrap(), 200);
    assert_eq!(time.sent()[2..], [at(1_000, "/3"), at(2_000, "/4")]);
    let mut requests = server.requests();
    requests.sort_unstable();
    assert_eq!(requests, ["/1", "/2", "/3", "/4"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_max_wait_fails_immediately_unsent() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = time.client(|builder| builder.with(partner("1/s").max_wait(ms(1_500))));
    let [first, second, third] = ["/1", "/2", "/3"].map(|path| call(&client, &server.url(path)));
    assert_eq!(first.await.unwrap().unwrap(), 200);
    // Without any time passing.
    let error = third.await.unwrap().unwrap_err();
    assert_eq!((&*error.limit, error.retry), ("partner", Retry::After(ms(1_500 - 1_000))));
    assert_eq!(error.to_string(), "call not sent: limit `partner` does not grant it within 1.5s, retry after 500ms");
    time.advance(1_000).await;
    assert_eq!(second.await.unwrap().unwrap(), 200);
    assert_eq!((time.sent(), server.requests().len()), (vec![at(0, "/1"), at(1_000, "/2")], 2));
}

#[tokio::test(start_paused = true)]
async fn each_host_has_its_own_limit() {
    let (time, a, b) = (VirtualTime::new(), TestServer::start().await, TestServer::start().await);
    let each = KeyedLimiter::new(quota("1/h")).with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::keyed("each-host", each, RequestHost::host).max_wait(ms(0));
    let client = time.client(|builder| builder.with(layer));
    for server in [&a, &b] {
        assert_eq!(call(&client, &server.url("/1")).await.unwrap().unwrap(), 200);
        assert_eq!(&*call(&client, &server.url("/2")).await.unwrap().unwrap_err().limit, "each-host");
    }
    assert_eq!((a.requests(), b.requests()), (vec!["/1".to_owned()], vec!["/1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_releases_its_reservation() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = time.client(|builder| builder.with(partner("1/s")));
    let [first, second] = ["/1", "/2"].map(|path| call(&client, &server.url(path)));
    assert_eq!(first.await.unwrap().unwrap(), 200);
    time.advance(500).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    let third = call(&client, &server.url("/3"));
    time.advance(500).await;
    assert_eq!(third.await.unwrap().unwrap(), 200);
    assert_eq!((time.sent(), server.requests().len()), (vec![at(0, "/1"), at(1_000, "/3")], 2));
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_released_when_the_call_ends_fails_or_is_dropped() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let permits = ConcurrencyLimiter::new("partner", 1).unwrap().with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::concurrency("partner", permits.clone()).max_wait(ms(0));
    let client = time.client(|builder| builder.with(layer));

    let in_flight = call(&client, &server.url("/never"));
    server.wait_for_request().await;
    assert_eq!(permits.available(), 0);
    let error = call(&client, &server.url("/")).await.unwrap().unwrap_err();
    assert_eq!((error.retry, server.requests()), (Retry::WhenReleased, vec!["/never".to_owned()]));
    in_flight.abort();
    assert!(in_flight.await.unwrap_err().is_cancelled());
    assert_eq!(permits.available(), 1);

    assert_eq!(call(&client, &server.url("/")).await.unwrap().unwrap(), 200);
    assert_eq!(permits.available(), 1);

    // Errors of the client itself are unchanged.
    let error = client.get("invalid://host/").send().await.unwrap_err();
    assert!(matches!(&error, Error::Reqwest(_)), "{error:?}");
    assert_eq!(permits.available(), 1);
}

#[tokio::test(start_paused = true)]
async fn rules_apply_to_calls() {
    let (_time, server) = (VirtualTime::new(), TestServer::start().await);
    let rules = "
rules:
  - {name: writes, match: {method: POST, path: /things/**, header: {x-plan: free}}, limit: 1/h}
  - {name: one, match: {path: /never}, concurrent: 1}
";
    let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default());
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let layer = ClientRateLimitLayer::by_rules(Filter::new(engine)).max_wait(ms(0));
    let client = ClientBuilder::new(plain()).with(layer).build();

    let write = || client.post(server.url("/things/1")).header("x-plan", "free");
    assert_eq!(write().send().await.unwrap().status(), 200);
    let error = write().send().await.unwrap_err();
    assert!(error.to_string().starts_with("call not sent: limit `writes` does not grant it"), "{error}");
    assert!(client.get(server.url("/things/1")).header("x-plan", "free").send().await.is_ok());
    assert!(client.post(server.url("/other")).header("x-plan", "free").send().await.is_ok());
    assert!(client.post(server.url("/things/1")).send().await.is_ok());
    assert_eq!(server.requests().len(), 4);

    // The first call holds the permit until it is dropped.
    for _ in 0..2 {
        let [first, second] = [(); 2].map(|()| call(&client, &server.url("/never")));
        assert_eq!(&*second.await.unwrap().unwrap_err().limit, "one");
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn works_as_a_tower_layer() {
    let (_time, server) = (VirtualTime::new(), TestServer::start().await);
    let layer = partner("1/s").max_wait(ms(0));
    let client = ServiceBuilder::new().layer(layer).service(plain());
    let get = || reqwest::Request::new(reqwest::Method::GET, server.url("/").parse().unwrap());
    assert_eq!(client.clone().oneshot(get()).await.unwrap().status(), 200);
    match client.oneshot(get()).await {
        Err(ClientRateLimitError::Overloaded(error)) => assert_eq!(error.retry, Retry::After(ms(1_000))),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.requests().len(), 1);
}
