//! `ClientRateLimitLayer`: calls wait until they are granted, and release their permits.

use super::site::Site;
use super::world::{World, at, call, plain};
use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, KeyedLimiter, Limiter, Quota, Retry, TokioClock};
use diana_http::{ClientRateLimitError, ClientRateLimitLayer, Filter, RequestHost};
use reqwest_middleware::{ClientBuilder, Error};
use std::sync::Arc;
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
async fn calls_go_out_at_the_rate_in_the_order_in_which_they_came() {
    let (world, site) = (World::new(), Site::start().await);
    let client = world.client(|builder| builder.with(partner("1/s burst 2")));
    let calls = ["/1", "/2", "/3", "/4"].map(|path| call(&client, &site.url(path)));
    let [first, second, third, fourth] = calls;
    assert_eq!((first.await.unwrap().unwrap(), second.await.unwrap().unwrap()), (200, 200));
    world.pass(999).await;
    assert_eq!(world.departures(), [at(0, "/1"), at(0, "/2")]);
    world.pass(1).await;
    assert_eq!(third.await.unwrap().unwrap(), 200);
    world.pass(1_000).await;
    assert_eq!(fourth.await.unwrap().unwrap(), 200);
    assert_eq!(world.departures()[2..], [at(1_000, "/3"), at(2_000, "/4")]);
    let mut asked = site.asked();
    asked.sort_unstable();
    assert_eq!(asked, ["/1", "/2", "/3", "/4"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_comes_too_late_fails_at_once_and_unsent() {
    let (world, site) = (World::new(), Site::start().await);
    let client = world.client(|builder| builder.with(partner("1/s").max_wait(ms(1_500))));
    let [first, second, third] = ["/1", "/2", "/3"].map(|path| call(&client, &site.url(path)));
    assert_eq!(first.await.unwrap().unwrap(), 200);
    // Nobody moved the time.
    let busy = third.await.unwrap().unwrap_err();
    assert_eq!((&*busy.limit, busy.retry), ("partner", Retry::After(ms(1_500 - 1_000))));
    assert_eq!(busy.to_string(), "limit `partner` has no room within 1.5s, and nothing was sent: try again in 500ms");
    world.pass(1_000).await;
    assert_eq!(second.await.unwrap().unwrap(), 200);
    assert_eq!((world.departures(), site.asked().len()), (vec![at(0, "/1"), at(1_000, "/2")], 2));
}

#[tokio::test(start_paused = true)]
async fn each_host_has_a_limit_of_its_own() {
    let (world, a, b) = (World::new(), Site::start().await, Site::start().await);
    let each = KeyedLimiter::new(quota("1/h")).with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::keyed("each-host", each, RequestHost::host).max_wait(ms(0));
    let client = world.client(|builder| builder.with(layer));
    for site in [&a, &b] {
        assert_eq!(call(&client, &site.url("/1")).await.unwrap().unwrap(), 200);
        assert_eq!(&*call(&client, &site.url("/2")).await.unwrap().unwrap_err().limit, "each-host");
    }
    assert_eq!((a.asked(), b.asked()), (vec!["/1".to_owned()], vec!["/1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_waits_gives_its_turn_to_the_next() {
    let (world, site) = (World::new(), Site::start().await);
    let client = world.client(|builder| builder.with(partner("1/s")));
    let [first, second] = ["/1", "/2"].map(|path| call(&client, &site.url(path)));
    assert_eq!(first.await.unwrap().unwrap(), 200);
    world.pass(500).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    let third = call(&client, &site.url("/3"));
    world.pass(500).await;
    assert_eq!(third.await.unwrap().unwrap(), 200);
    assert_eq!((world.departures(), site.asked().len()), (vec![at(0, "/1"), at(1_000, "/3")], 2));
}

#[tokio::test(start_paused = true)]
async fn a_place_comes_back_when_the_call_is_answered_fails_or_is_dropped() {
    let (world, site) = (World::new(), Site::start().await);
    let permits = ConcurrencyLimiter::new("partner", 1).unwrap().with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::at_a_time("partner", permits.clone()).max_wait(ms(0));
    let client = world.client(|builder| builder.with(layer));

    let under_way = call(&client, &site.url("/never"));
    site.is_asked().await;
    assert_eq!(permits.available(), 0);
    let busy = call(&client, &site.url("/")).await.unwrap().unwrap_err();
    assert_eq!((busy.retry, site.asked()), (Retry::WhenReturned, vec!["/never".to_owned()]));
    under_way.abort();
    assert!(under_way.await.unwrap_err().is_cancelled());
    assert_eq!(permits.available(), 1);

    assert_eq!(call(&client, &site.url("/")).await.unwrap().unwrap(), 200);
    assert_eq!(permits.available(), 1);

    // What the client itself says about a call stays as it is.
    let error = client.get("nonsense://nobody/").send().await.unwrap_err();
    assert!(matches!(&error, Error::Reqwest(_)), "{error:?}");
    assert_eq!(permits.available(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_rules_of_a_file_see_the_calls() {
    let (_world, site) = (World::new(), Site::start().await);
    let rules = "
rules:
  - {name: writes, match: {method: POST, path: /things/**, header: {x-plan: free}}, limit: 1/h}
  - {name: one, match: {path: /never}, concurrent: 1}
";
    let file = RuleFile::read(&Document::new("diana.yaml", rules), &Registry::default());
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let layer = ClientRateLimitLayer::by_rules(Filter::new(Arc::new(engine))).max_wait(ms(0));
    let client = ClientBuilder::new(plain()).with(layer).build();

    let write = || client.post(site.url("/things/1")).header("x-plan", "free");
    assert_eq!(write().send().await.unwrap().status(), 200);
    let error = write().send().await.unwrap_err();
    assert!(error.to_string().starts_with("limit `writes` has no room"), "{error}");
    assert!(client.get(site.url("/things/1")).header("x-plan", "free").send().await.is_ok());
    assert!(client.post(site.url("/other")).header("x-plan", "free").send().await.is_ok());
    assert!(client.post(site.url("/things/1")).send().await.is_ok());
    assert_eq!(site.asked().len(), 4);

    // The place is the first one's until it is dropped; then it is free for another.
    for _ in 0..2 {
        let [first, second] = [(); 2].map(|()| call(&client, &site.url("/never")));
        assert_eq!(&*second.await.unwrap().unwrap_err().limit, "one");
        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
    }
}

#[tokio::test(start_paused = true)]
async fn the_client_is_a_tower_service_as_well() {
    let (_world, site) = (World::new(), Site::start().await);
    let layer = partner("1/s").max_wait(ms(0));
    let client = ServiceBuilder::new().layer(layer).service(plain());
    let get = || reqwest::Request::new(reqwest::Method::GET, site.url("/").parse().unwrap());
    assert_eq!(client.clone().oneshot(get()).await.unwrap().status(), 200);
    match client.oneshot(get()).await {
        Err(ClientRateLimitError::Overloaded(busy)) => assert_eq!(busy.retry, Retry::After(ms(1_000))),
        other => panic!("{other:?}"),
    }
    assert_eq!(site.asked().len(), 1);
}
