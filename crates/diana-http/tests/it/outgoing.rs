//! Outgoing calls wait until they are granted, in order, and at most for their maximum wait.

use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, KeyedLimiter, Limiter, Quota, Retry, TokioClock};
use diana_http::{ClientRateLimitError, ClientRateLimitLayer, Filter};
use http::Request;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When each call arrived at the server.
#[derive(Clone)]
struct Server {
    start: Instant,
    seen: Arc<Mutex<Vec<(u128, u32)>>>,
    takes: Duration,
}

impl Server {
    fn new(takes: Duration) -> Self {
        Self { start: Instant::now(), seen: Arc::default(), takes }
    }

    fn client(&self) -> impl Service<u32, Response = u32, Error = Infallible, Future: Send> + Clone + use<> {
        let server = self.clone();
        service_fn(move |number| {
            let server = server.clone();
            async move {
                server.seen.lock().push((server.start.elapsed().as_millis(), number));
                tokio::time::sleep(server.takes).await;
                Ok(number)
            }
        })
    }

    fn seen(&self) -> Vec<(u128, u32)> {
        self.seen.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_go_out_at_the_rate_in_the_order_in_which_they_came() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("10/s burst 2")).with_clock(TokioClock::new());
    let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new("partner", limiter)).service(server.client());
    let calls = (0..5).map(|number| client.clone().oneshot(number));
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(answers.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(server.seen(), [(0, 0), (0, 1), (100, 2), (200, 3), (300, 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_comes_too_late_fails_at_once_and_unsent() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::new("partner", limiter).max_wait(ms(1_500));
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = (0..3).map(|number| client.clone().oneshot(number));
    let mut answers = futures_util::future::join_all(calls).await;
    let error = answers.pop().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "limit `partner` has no room within 1.5s, and nothing was sent: try again in 500ms");
    let ClientRateLimitError::Overloaded(busy) = error else { panic!("{error}") };
    assert_eq!(busy.retry, Retry::After(ms(500)));
    assert_eq!(server.seen(), [(0, 0), (1_000, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_its_turn_to_the_next() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new("partner", limiter)).service(server.client());
    client.clone().oneshot(0).await.unwrap();
    assert!(tokio::time::timeout(ms(99), client.clone().oneshot(1)).await.is_err());
    client.clone().oneshot(2).await.unwrap();
    assert_eq!(server.seen(), [(0, 0), (1_000, 2)]);
}

#[tokio::test(start_paused = true)]
async fn keys_wait_apart_and_who_has_none_does_not_wait() {
    let server = Server::new(ms(1));
    let limiter = KeyedLimiter::new(quota("1/s")).with_clock(TokioClock::new());
    let key = |number: &u32| (*number != 7).then(|| if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned());
    let layer = ClientRateLimitLayer::keyed("each", limiter, key);
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = [0, 2, 1, 7, 7, 7].map(|number| client.clone().oneshot(number));
    futures_util::future::join_all(calls).await;
    assert_eq!(server.seen(), [(0, 0), (0, 1), (0, 7), (0, 7), (0, 7), (1_000, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_when_the_response_is_there() {
    let server = Server::new(ms(50));
    let permits = ConcurrencyLimiter::new("partner", 2).unwrap().with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::at_a_time("partner", permits.clone()).max_wait(ms(60));
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = (0..5).map(|number| client.clone().oneshot(number));
    let answers = futures_util::future::join_all(calls).await;
    assert_eq!(server.seen(), [(0, 0), (0, 1), (50, 2), (50, 3)]);
    let error = answers.into_iter().last().unwrap().unwrap_err();
    assert!(error.to_string().ends_with("try again when other calls are done"), "{error}");
    assert_eq!(permits.available(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_wait_may_be_unlimited() {
    let file = Document::new("diana.yaml", "rules: [{name: one, limit: 1/s}]");
    let file = RuleFile::read(&file, &Registry::default()).unwrap();
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let rules = ClientRateLimitLayer::by_rules(Filter::new(Arc::new(engine))).max_wait(Duration::MAX);
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let limit = ClientRateLimitLayer::new("partner", limiter).max_wait(Duration::MAX);
    let permits = ConcurrencyLimiter::new("partner", 1).unwrap().with_clock(TokioClock::new());
    let place = ClientRateLimitLayer::at_a_time("partner", permits).max_wait(Duration::MAX);
    let call = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(()) });
    let client = ServiceBuilder::new().layer(rules).layer(limit).layer(place).service(call);
    let start = Instant::now();
    for _ in 0..3 {
        client.clone().oneshot(Request::new(())).await.unwrap();
    }
    assert_eq!(start.elapsed(), ms(2_000));
}
