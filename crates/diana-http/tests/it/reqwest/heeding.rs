//! `RetryAfterLayer`: calls respect a retry time, and other hosts are not affected.

use super::site::Site;
use super::world::{World, at, call, plain};
use diana::{ConcurrencyLimiter, Limiter, Quota, Retry, TokioClock};
use diana_http::{ClientRateLimitError, ClientRateLimitLayer, RetryAfterLayer};
use std::time::Duration;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::test(start_paused = true)]
async fn after_a_refusal_calls_wait_for_as_long_as_it_says() {
    let (world, site) = (World::new(), Site::start().await);
    let client = world.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &site.url("/busy")).await.unwrap().unwrap(), 429);
    let [first, second] = ["/1", "/2"].map(|path| call(&client, &site.url(path)));
    world.pass(2_999).await;
    assert_eq!(world.departures(), [at(0, "/busy")]);
    world.pass(1).await;
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (200, 200));
    assert_eq!(world.departures()[1..], [at(3_000, "/1"), at(3_000, "/2")]);
    assert_eq!(site.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn after_the_last_one_that_is_granted_calls_wait_too() {
    let (world, site) = (World::new(), Site::start().await);
    let client = world.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &site.url("/more")).await.unwrap().unwrap(), 200);
    assert_eq!(call(&client, &site.url("/last")).await.unwrap().unwrap(), 200);
    let next = call(&client, &site.url("/next"));
    world.pass(1_999).await;
    assert_eq!(world.departures(), [at(0, "/more"), at(0, "/last")]);
    world.pass(1).await;
    assert_eq!(next.await.unwrap().unwrap(), 200);
    assert_eq!(world.departures()[2..], [at(2_000, "/next")]);
}

#[tokio::test(start_paused = true)]
async fn other_hosts_are_not_held_back() {
    let (world, a, b) = (World::new(), Site::start().await, Site::start().await);
    let client = world.client(|builder| builder.with(RetryAfterLayer::new()));
    assert_eq!(call(&client, &a.url("/busy")).await.unwrap().unwrap(), 429);
    let held = call(&client, &a.url("/held"));
    assert_eq!(call(&client, &b.url("/free")).await.unwrap().unwrap(), 200);
    assert_eq!((a.asked(), b.asked()), (vec!["/busy".to_owned()], vec!["/free".to_owned()]));
    world.pass(3_000).await;
    assert_eq!(held.await.unwrap().unwrap(), 200);
    assert_eq!(world.departures(), [at(0, "/busy"), at(0, "/free"), at(3_000, "/held")]);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_fails_at_once_and_unsent() {
    let (world, site) = (World::new(), Site::start().await);
    let heed = RetryAfterLayer::new().max_wait(Duration::from_secs(4));
    let client = world.client(|builder| builder.with(heed));
    assert_eq!(call(&client, &site.url("/closed")).await.unwrap().unwrap(), 503);
    world.pass(20_000).await;
    let busy = call(&client, &site.url("/1")).await.unwrap().unwrap_err();
    assert_eq!((&*busy.limit, busy.retry), (&*site.host, Retry::After(Duration::from_secs(100))));
    assert_eq!(site.asked(), ["/closed"]);
}

#[tokio::test(start_paused = true)]
async fn behind_a_redirect_both_hosts_are_left_alone() {
    let (world, a, b, c) = (World::new(), Site::start().await, Site::start().await, Site::start().await);
    let client = world.client(|builder| builder.with(RetryAfterLayer::new().max_wait(Duration::ZERO)));
    let way = format!("{}?{}", a.url("/to"), b.url("/busy"));
    assert_eq!(call(&client, &way).await.unwrap().unwrap(), 429);
    for site in [&a, &b] {
        let busy = call(&client, &site.url("/1")).await.unwrap().unwrap_err();
        assert_eq!((&busy.limit, busy.retry), (&site.host.as_str().into(), Retry::After(Duration::from_secs(3))));
    }
    assert_eq!(call(&client, &c.url("/1")).await.unwrap().unwrap(), 200);
    assert_eq!((a.asked(), b.asked()), (vec!["/to".to_owned()], vec!["/busy".to_owned()]));
}

/// Calls that are granted during the pause are queued again.
#[tokio::test(start_paused = true)]
async fn with_a_limit_calls_go_out_at_its_rate_once_the_pause_is_over() {
    let (world, site) = (World::new(), Site::start().await);
    let limiter = Limiter::new("1/s".parse::<Quota>().unwrap()).with_clock(TokioClock::new());
    let layer =
        RetryAfterLayer::new().limit(ClientRateLimitLayer::new("own", limiter).max_wait(Duration::from_secs(2)));
    let client = world.client(|builder| builder.with(layer));
    let [busy, first, second, third] = ["/busy", "/1", "/2", "/3"].map(|path| call(&client, &site.url(path)));
    assert_eq!(busy.await.unwrap().unwrap(), 429);
    assert_eq!(&*third.await.unwrap().unwrap_err().limit, "own");
    for _ in 0..2 {
        world.pass(1_000).await;
        assert_eq!(world.departures(), [at(0, "/busy")]);
    }
    world.pass(1_000).await;
    assert_eq!(first.await.unwrap().unwrap(), 200);
    world.pass(999).await;
    assert_eq!(world.departures()[1..], [at(3_000, "/1")]);
    world.pass(1).await;
    assert_eq!(second.await.unwrap().unwrap(), 200);
    assert_eq!(world.departures()[2..], [at(4_000, "/2")]);
    assert_eq!(site.asked(), ["/busy", "/1", "/2"]);
}

#[tokio::test(start_paused = true)]
async fn a_place_comes_back_when_the_call_is_answered_or_dropped() {
    let (world, site) = (World::new(), Site::start().await);
    let permits = ConcurrencyLimiter::new("own", 1).unwrap().with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::at_a_time("own", permits.clone()));
    let client = world.client(|builder| builder.with(layer));
    let under_way = call(&client, &site.url("/never"));
    site.is_asked().await;
    assert_eq!(permits.available(), 0);
    under_way.abort();
    assert!(under_way.await.unwrap_err().is_cancelled());
    assert_eq!(permits.available(), 1);
    assert_eq!(call(&client, &site.url("/busy")).await.unwrap().unwrap(), 429);
    // Who waits for the pause to end keeps nobody from a place.
    let waits = call(&client, &site.url("/1"));
    world.pass(2_999).await;
    assert_eq!((permits.available(), waits.is_finished()), (1, false));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_client_is_a_tower_service_as_well() {
    let (_world, site) = (World::new(), Site::start().await);
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new().max_wait(Duration::ZERO)).service(plain());
    let get = |path| reqwest::Request::new(reqwest::Method::GET, site.url(path).parse().unwrap());
    assert_eq!(client.clone().oneshot(get("/busy")).await.unwrap().status(), 429);
    match client.oneshot(get("/1")).await {
        Err(ClientRateLimitError::Overloaded(busy)) => assert_eq!(busy.retry, Retry::After(Duration::from_secs(3))),
        other => panic!("{other:?}"),
    }
    assert_eq!(site.asked(), ["/busy"]);
}
