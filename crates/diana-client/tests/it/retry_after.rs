//! A client respects a retry time to the millisecond, and other hosts are not affected.

use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, Limiter, Quota, Retry, TokioClock};
use diana_client::{ClientRateLimitError, ClientRateLimitLayer, RetryAfterLayer};
use diana_http::RateLimitLayer;
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

type RequestLog = Arc<Mutex<Vec<(u128, String)>>>;

fn call(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

/// A service that responds with `status` and a header to paths with a given prefix, and records the times of its
/// requests.
fn partner(
    log: &RequestLog,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    let (start, log) = (Instant::now(), Arc::clone(log));
    service_fn(move |request: Request<()>| {
        let path = request.uri().path().to_owned();
        log.lock().push((start.elapsed().as_millis(), format!("{}{path}", request.uri().host().unwrap())));
        async move {
            if path.contains("slow") {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            let response = Response::builder();
            let response = match &*path {
                "/busy" => response.status(429).header("retry-after", "3"),
                "/slow-and-busier" => response.status(503).header("retry-after", "10"),
                "/last" => response.header("ratelimit", "\"a\";r=0;t=2"),
                "/for-ever" => response.status(429).header("retry-after", "999999999"),
                _ => response,
            };
            Ok(response.body(()).unwrap())
        }
    })
}

#[tokio::test(start_paused = true)]
async fn calls_wait_until_the_retry_time() {
    let log = RequestLog::default();
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(partner(&log));
    for path in ["a/busy", "a/x", "b/x", "a/last", "a/y", "a/z"] {
        client.clone().oneshot(call(&format!("http://{path}"))).await.unwrap();
    }
    let log = log.lock().clone();
    let expected = [(0, "a/busy"), (3_000, "a/x"), (3_000, "b/x"), (3_000, "a/last"), (5_000, "a/y"), (5_000, "a/z")];
    assert_eq!(log, expected.map(|(time, path)| (time, path.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_respect_a_longer_pause() {
    let log = RequestLog::default();
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(partner(&log));
    // The slow call is in flight when the other is denied; its response arrives while a third call waits.
    let (slow, busy) = (call("http://a/slow-and-busier"), call("http://a/busy"));
    let late = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        client.clone().oneshot(call("http://a/x")).await.unwrap();
    };
    let _ = tokio::join!(client.clone().oneshot(slow), client.clone().oneshot(busy), late);
    assert_eq!(log.lock().last().unwrap(), &(11_000, "a/x".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_max_wait_fails_immediately_unsent() {
    let log = RequestLog::default();
    let layer = RetryAfterLayer::new().max_pause(Duration::from_secs(60)).max_wait(Duration::from_secs(4));
    let client = ServiceBuilder::new().layer(layer).service(partner(&log));
    client.clone().oneshot(call("http://a/for-ever")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    let start = Instant::now();
    match client.clone().oneshot(call("http://a/x")).await {
        Err(ClientRateLimitError::Overloaded(error)) => {
            assert_eq!((&*error.limit, error.retry), ("a", Retry::After(Duration::from_secs(10))));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((start.elapsed(), log.lock().len()), (Duration::ZERO, 1));
    // The longest pause is a minute.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(client.oneshot(call("http://a/x")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_calls_are_sent_at_the_rate_of_the_limit() {
    let log = RequestLog::default();
    let limiter = Limiter::new("1/2s".parse::<Quota>().unwrap()).with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::new("client", limiter));
    let client = ServiceBuilder::new().layer(layer).service(partner(&log));
    // All are queued when the first one is denied, after a second, for ten seconds: they are granted during the pause.
    let calls =
        ["slow-and-busier", "1", "2", "3"].map(|path| client.clone().oneshot(call(&format!("http://a/{path}"))));
    for response in futures_util::future::join_all(calls).await {
        response.unwrap();
    }
    let expected = [(0, "a/slow-and-busier"), (11_000, "a/1"), (13_000, "a/2"), (15_000, "a/3")];
    assert_eq!(*log.lock(), expected.map(|(time, path)| (time, path.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_concurrency_permit_is_held_until_the_response() {
    let log = RequestLog::default();
    let permits = ConcurrencyLimiter::new("client", 1).unwrap().with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::concurrency("client", permits.clone()));
    let client = ServiceBuilder::new().layer(layer).service(partner(&log));
    let calls = ["slow-1", "slow-2"].map(|path| client.clone().oneshot(call(&format!("http://a/{path}"))));
    futures_util::future::join_all(calls).await;
    assert_eq!(*log.lock(), [(0, "a/slow-1".to_owned()), (1_000, "a/slow-2".to_owned())]);
    assert_eq!(permits.available(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_wait_may_be_unlimited() {
    let (log, start) = (RequestLog::default(), Instant::now());
    let layer = RetryAfterLayer::new().max_pause(Duration::MAX).max_wait(Duration::MAX);
    let client = ServiceBuilder::new().layer(layer).service(partner(&log));
    for path in ["for-ever", "x"] {
        client.clone().oneshot(call(&format!("http://a/{path}"))).await.unwrap();
    }
    assert_eq!((start.elapsed().as_secs(), log.lock().len()), (999_999_999, 2));
}

#[tokio::test(start_paused = true)]
async fn normalizes_hosts_and_hides_passwords_in_errors() {
    let log = RequestLog::default();
    let layer = RetryAfterLayer::new().max_wait(Duration::ZERO);
    let client = ServiceBuilder::new().layer(layer).service(partner(&log));
    client.clone().oneshot(call("http://me:secret@A.example:80/busy")).await.unwrap();
    let error = client.clone().oneshot(call("http://a.example/x")).await.unwrap_err();
    assert_eq!(error.to_string(), "call not sent: limit `a.example` does not grant it within 0ns, retry after 3s");
    client.oneshot(call("http://a.example:81/x")).await.unwrap();
}

/// Both sides are Diana's: a client that respects the layer's headers is never denied.
#[tokio::test(start_paused = true)]
async fn a_client_with_the_layer_is_never_denied_by_diana() {
    let rules = Document::new("diana.yaml", "rules: [{name: few, limit: 3/10s, algorithm: fixed_window, status: 429}]");
    let file = RuleFile::read(&rules, &Registry::default()).unwrap();
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let limited = ServiceBuilder::new()
        .layer(RateLimitLayer::with_engine(engine))
        .service(service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new(Full::<&[u8]>::default())) }));
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(limited);
    let start = Instant::now();
    for number in 0..10 {
        let request = Request::get("http://a/").body(Full::<&[u8]>::default()).unwrap();
        let response = client.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200, "call {number} at {:?}", start.elapsed());
    }
    assert!(start.elapsed() >= Duration::from_secs(20), "{:?}", start.elapsed());
}
