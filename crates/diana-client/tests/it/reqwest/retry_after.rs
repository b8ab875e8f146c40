//! `RetryAfterLayer`: calls respect a retry time, and other hosts are not affected.

use super::server::TestServer;
use super::virtual_time::{VirtualTime, at, call, plain};
use diana::{ConcurrencyLimiter, Limiter, Quota, Retry, TokioClock};
use diana_client::{ClientRateLimitError, ClientRateLimitLayer, RetryAfterLayer};
use std::time::Duration;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::test(start_paused = true)]
async fn after_a_denial_calls_wait_until_the_retry_time() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = time.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &server.url("/busy")).await.unwrap().unwrap(), 429);
    let [first, second] = ["/1", "/2"].map(|path| call(&client, &server.url(path)));
    time.advance(2_999).await;
    assert_eq!(time.sent(), [at(0, "/busy")]);
    time.advance(1).await;
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (200, 200));
    assert_eq!(time.sent()[1..], [at(3_000, "/1"), at(3_000, "/2")]);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_an_exhausted_rate_limit_calls_wait() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = time.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &server.url("/more")).await.unwrap().unwrap(), 200);
    assert_eq!(call(&client, &server.url("/last")).await.unwrap().unwrap(), 200);
    let next = call(&client, &server.url("/next"));
    time.advance(1_999).await;
    assert_eq!(time.sent(), [at(0, "/more"), at(0, "/last")]);
    time.advance(1).await;
    assert_eq!(next.await.unwrap().unwrap(), 200);
    assert_eq!(time.sent()[2..], [at(2_000, "/next")]);
}

#[tokio::test(start_paused = true)]
async fn other_hosts_are_not_paused() {
    let (time, a, b) = (VirtualTime::new(), TestServer::start().await, TestServer::start().await);
    let client = time.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &a.url("/busy")).await.unwrap().unwrap(), 429);
    let held = call(&client, &a.url("/held"));
    assert_eq!(call(&client, &b.url("/free")).await.unwrap().unwrap(), 200);
    assert_eq!((a.requests(), b.requests()), (vec!["/busy".to_owned()], vec!["/free".to_owned()]));
    time.advance(3_000).await;
    assert_eq!(held.await.unwrap().unwrap(), 200);
    assert_eq!(time.sent(), [at(0, "/busy"), at(0, "/free"), at(3_000, "/held")]);
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_max_wait_fails_immediately_unsent() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let layer = RetryAfterLayer::new().max_wait(Duration::from_secs(4));
    let client = time.client(|builder| builder.with(layer));
    assert_eq!(call(&client, &server.url("/closed")).await.unwrap().unwrap(), 503);
    time.advance(20_000).await;
    let error = call(&client, &server.url("/1")).await.unwrap().unwrap_err();
    assert_eq!((&*error.limit, error.retry), (&*server.host, Retry::After(Duration::from_secs(100))));
    assert_eq!(server.requests(), ["/closed"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_redirect_both_hosts_are_paused() {
    let (time, a, b, c) =
        (VirtualTime::new(), TestServer::start().await, TestServer::start().await, TestServer::start().await);
    let client = time.client(|builder| builder.with(RetryAfterLayer::new().max_wait(Duration::ZERO)));
    let redirect = format!("{}?{}", a.url("/to"), b.url("/busy"));
    assert_eq!(call(&client, &redirect).await.unwrap().unwrap(), 429);
    for server in [&a, &b] {
        let error = call(&client, &server.url("/1")).await.unwrap().unwrap_err();
        assert_eq!((&error.limit, error.retry), (&server.host.as_str().into(), Retry::After(Duration::from_secs(3))));
    }
    assert_eq!(call(&client, &c.url("/1")).await.unwrap().unwrap(), 200);
    assert_eq!((a.requests(), b.requests()), (vec!["/to".to_owned()], vec!["/busy".to_owned()]));
}

/// Calls that are granted during the pause are queued again.
#[tokio::test(start_paused = true)]
async fn after_a_pause_calls_are_sent_at_the_rate_of_the_limit() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let limiter = Limiter::new("1/s".parse::<Quota>().unwrap()).with_clock(TokioClock::new());
    let layer =
        RetryAfterLayer::new().limit(ClientRateLimitLayer::new("client", limiter).max_wait(Duration::from_secs(2)));
    let client = time.client(|builder| builder.with(layer));
    let [denied, first, second, third] = ["/busy", "/1", "/2", "/3"].map(|path| call(&client, &server.url(path)));
    assert_eq!(denied.await.unwrap().unwrap(), 429);
    assert_eq!(&*third.await.unwrap().unwrap_err().limit, "client");
    for _ in 0..2 {
        time.advance(1_000).await;
        assert_eq!(time.sent(), [at(0, "/busy")]);
    }
    time.advance(1_000).await;
    assert_eq!(first.await.unwrap().unwrap(), 200);
    time.advance(999).await;
    assert_eq!(time.sent()[1..], [at(3_000, "/1")]);
    time.advance(1).await;
    assert_eq!(second.await.unwrap().unwrap(), 200);
    assert_eq!(time.sent()[2..], [at(4_000, "/2")]);
    assert_eq!(server.requests(), ["/busy", "/1", "/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_released_when_the_call_ends_or_is_dropped() {
    let (time, server) = (VirtualTime::new(), TestServer::start().await);
    let permits = ConcurrencyLimiter::new("client", 1).unwrap().with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::concurrency("client", permits.clone()));
    let client = time.client(|builder| builder.with(layer));
    let in_flight = call(&client, &server.url("/never"));
    server.wait_for_request().await;
    assert_eq!(permits.available(), 0);
    in_flight.abort();
    assert!(in_flight.await.unwrap_err().is_cancelled());
    assert_eq!(permits.available(), 1);
    assert_eq!(call(&client, &server.url("/busy")).await.unwrap().unwrap(), 429);
    // A call that waits for the end of the pause holds no permit.
    let waits = call(&client, &server.url("/1"));
    time.advance(2_999).await;
    assert_eq!((permits.available(), waits.is_finished()), (1, false));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn works_as_a_tower_layer() {
    let (_time, server) = (VirtualTime::new(), TestServer::start().await);
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new().max_wait(Duration::ZERO)).service(plain());
    let get = |path| reqwest::Request::new(reqwest::Method::GET, server.url(path).parse().unwrap());
    assert_eq!(client.clone().oneshot(get("/busy")).await.unwrap().status(), 429);
    match client.oneshot(get("/1")).await {
        Err(ClientRateLimitError::Overloaded(error)) => assert_eq!(error.retry, Retry::After(Duration::from_secs(3))),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.requests(), ["/busy"]);
}
