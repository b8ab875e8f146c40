//! Outgoing calls wait until they are granted, in order, and at most for their maximum wait.

use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, KeyedLimiter, Limiter, Quota, Retry, TokioClock};
use diana_client::{ClientRateLimitError, ClientRateLimitLayer};
use diana_http::Filter;
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
    received: Arc<Mutex<Vec<(u128, u32)>>>,
    takes: Duration,
}

impl Server {
    fn new(takes: Duration) -> Self {
        Self { start: Instant::now(), received: Arc::default(), takes }
    }

    fn client(&self) -> impl Service<u32, Response = u32, Error = Infallible, Future: Send> + Clone + use<> {
        let server = self.clone();
        service_fn(move |number| {
            let server = server.clone();
            async move {
                server.received.lock().push((server.start.elapsed().as_millis(), number));
                tokio::time::sleep(server.takes).await;
                Ok(number)
            }
        })
    }

    fn received(&self) -> Vec<(u128, u32)> {
        self.received.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_sent_at_the_rate_in_fifo_order() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("10/s burst 2")).with_clock(TokioClock::new());
    let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new("partner", limiter)).service(server.client());
    let calls = (0..5).map(|number| client.clone().oneshot(number));
    let results = futures_util::future::join_all(calls).await;
    assert_eq!(results.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(server.received(), [(0, 0), (0, 1), (100, 2), (200, 3), (300, 4)]);
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_max_wait_fails_immediately_unsent() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::new("partner", limiter).max_wait(ms(1_500));
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = (0..3).map(|number| client.clone().oneshot(number));
    let mut results = futures_util::future::join_all(calls).await;
    let error = results.pop().unwrap().unwrap_err();
    assert_eq!(error.to_string(), "call not sent: limit `partner` does not grant it within 1.5s, retry after 500ms");
    let ClientRateLimitError::Overloaded(overloaded) = error else { panic!("{error}") };
    assert_eq!(overloaded.retry, Retry::After(ms(500)));
    assert_eq!(server.received(), [(0, 0), (1_000, 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_releases_its_reservation() {
    let server = Server::new(ms(1));
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let client = ServiceBuilder::new().layer(ClientRateLimitLayer::new("partner", limiter)).service(server.client());
    client.clone().oneshot(0).await.unwrap();
    assert!(tokio::time::timeout(ms(99), client.clone().oneshot(1)).await.is_err());
    client.clone().oneshot(2).await.unwrap();
    assert_eq!(server.received(), [(0, 0), (1_000, 2)]);
}

#[tokio::test(start_paused = true)]
async fn keys_wait_separately_and_calls_without_a_key_do_not_wait() {
    let server = Server::new(ms(1));
    let limiter = KeyedLimiter::new(quota("1/s")).with_clock(TokioClock::new());
    let key = |number: &u32| (*number != 7).then(|| if number.is_multiple_of(2) { "even" } else { "odd" }.to_owned());
    let layer = ClientRateLimitLayer::keyed("each", limiter, key);
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = [0, 2, 1, 7, 7, 7].map(|number| client.clone().oneshot(number));
    futures_util::future::join_all(calls).await;
    assert_eq!(server.received(), [(0, 0), (0, 1), (0, 7), (0, 7), (0, 7), (1_000, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_released_with_the_response() {
    let server = Server::new(ms(50));
    let permits = ConcurrencyLimiter::new("partner", 2).unwrap().with_clock(TokioClock::new());
    let layer = ClientRateLimitLayer::concurrency("partner", permits.clone()).max_wait(ms(60));
    let client = ServiceBuilder::new().layer(layer).service(server.client());
    let calls = (0..5).map(|number| client.clone().oneshot(number));
    let results = futures_util::future::join_all(calls).await;
    assert_eq!(server.received(), [(0, 0), (0, 1), (50, 2), (50, 3)]);
    let error = results.into_iter().last().unwrap().unwrap_err();
    assert!(error.to_string().ends_with("retry when a permit is released"), "{error}");
    assert_eq!(permits.available(), 2);
}

fn by_rules(rules: &str) -> ClientRateLimitLayer<Filter> {
    let document = Document::new("diana.yaml", format!("rules: [{rules}]"));
    let file = RuleFile::read(&document, &Registry::default()).unwrap_or_else(|problems| panic!("{problems}"));
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    ClientRateLimitLayer::by_rules(Filter::new(engine))
}

/// A server of HTTP requests.
fn server() -> impl Service<Request<()>, Response = (), Error = Infallible, Future: Send> + Clone {
    service_fn(|_| async { Ok(()) })
}

#[tokio::test(start_paused = true)]
async fn rules_limit_outgoing_calls() {
    let rules = "{name: partner, by: host, limit: 10/s, burst: 1}, {name: never, match: {path: /never}, limit: 1/day}";
    let layer = by_rules(rules).max_wait(Duration::from_secs(3));
    let client = ServiceBuilder::new().layer(layer).service(server());
    let call = |host: &str, path: &str| {
        let request = Request::get(format!("http://{host}.example{path}")).body(()).unwrap();
        client.clone().oneshot(request)
    };
    let start = Instant::now();
    for host in ["a", "b", "a", "a"] {
        call(host, "/").await.unwrap();
    }
    assert_eq!(start.elapsed(), ms(200));
    call("c", "/never").await.unwrap();
    let error = call("d", "/never").await.unwrap_err().to_string();
    assert!(error.starts_with("call not sent: limit `never` does not grant it within 3s"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_wait_may_be_unlimited() {
    let rules = by_rules("{name: one, limit: 1/s}").max_wait(Duration::MAX);
    let limiter = Limiter::new(quota("1/s")).with_clock(TokioClock::new());
    let limit = ClientRateLimitLayer::new("partner", limiter).max_wait(Duration::MAX);
    let permits = ConcurrencyLimiter::new("partner", 1).unwrap().with_clock(TokioClock::new());
    let concurrency = ClientRateLimitLayer::concurrency("partner", permits).max_wait(Duration::MAX);
    let client = ServiceBuilder::new().layer(rules).layer(limit).layer(concurrency).service(server());
    let start = Instant::now();
    for _ in 0..3 {
        client.clone().oneshot(Request::new(())).await.unwrap();
    }
    assert_eq!(start.elapsed(), ms(2_000));
}
