//! A client respects a retry time to the millisecond, and other hosts are not affected.

use diana::rules::{Document, Registry, RuleFile};
use diana::{ConcurrencyLimiter, Engine, EngineOptions, Limiter, Quota, Retry, TokioClock};
use diana_http::{ClientRateLimitError, ClientRateLimitLayer, RateLimitLayer, RetryAfterLayer};
use http::{Request, Response};
use http_body_util::Full;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

type Seen = Arc<Mutex<Vec<(u128, String)>>>;

fn call(uri: &str) -> Request<()> {
    Request::get(uri).body(()).unwrap()
}

/// A service that responds with `status` and a header to paths with a given prefix, and records the times of its
/// requests.
fn partner(
    seen: &Seen,
) -> impl Service<Request<()>, Response = Response<()>, Error = Infallible, Future: Send> + Clone {
    let (start, seen) = (Instant::now(), Arc::clone(seen));
    service_fn(move |request: Request<()>| {
        let path = request.uri().path().to_owned();
        seen.lock().push((start.elapsed().as_millis(), format!("{}{path}", request.uri().host().unwrap())));
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
async fn calls_wait_until_the_other_side_wants_them() {
    let seen = Seen::default();
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(partner(&seen));
    for path in ["a/busy", "a/x", "b/x", "a/last", "a/y", "a/z"] {
        client.clone().oneshot(call(&format!("http://{path}"))).await.unwrap();
    }
    let seen = seen.lock().clone();
    let expected = [(0, "a/busy"), (3_000, "a/x"), (3_000, "b/x"), (3_000, "a/last"), (5_000, "a/y"), (5_000, "a/z")];
    assert_eq!(seen, expected.map(|(at, what)| (at, what.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_hear_of_a_longer_pause() {
    let seen = Seen::default();
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(partner(&seen));
    // One is under way when another is told to wait; its answer comes while a third waits for that.
    let (slow, busy) = (call("http://a/slow-and-busier"), call("http://a/busy"));
    let late = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        client.clone().oneshot(call("http://a/x")).await.unwrap();
    };
    let _ = tokio::join!(client.clone().oneshot(slow), client.clone().oneshot(busy), late);
    assert_eq!(seen.lock().last().unwrap(), &(11_000, "a/x".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_fails_at_once_and_unsent() {
    let seen = Seen::default();
    let layer = RetryAfterLayer::new().longest(Duration::from_secs(60)).max_wait(Duration::from_secs(4));
    let client = ServiceBuilder::new().layer(layer).service(partner(&seen));
    client.clone().oneshot(call("http://a/for-ever")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    let start = Instant::now();
    match client.clone().oneshot(call("http://a/x")).await {
        Err(ClientRateLimitError::Overloaded(busy)) => {
            assert_eq!((&*busy.limit, busy.retry), ("a", Retry::After(Duration::from_secs(10))));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((start.elapsed(), seen.lock().len()), (Duration::ZERO, 1));
    // Whatever it said, it is asked again after a minute.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(client.oneshot(call("http://a/x")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn with_a_limit_calls_go_out_at_its_rate_once_the_pause_is_over() {
    let seen = Seen::default();
    let limiter = Limiter::new("1/2s".parse::<Quota>().unwrap()).with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::new("own", limiter));
    let client = ServiceBuilder::new().layer(layer).service(partner(&seen));
    // All stand in line when the first one is told, after a second, to stay away for ten; so their turns come during the pause.
    let calls =
        ["slow-and-busier", "1", "2", "3"].map(|path| client.clone().oneshot(call(&format!("http://a/{path}"))));
    for answer in futures_util::future::join_all(calls).await {
        answer.unwrap();
    }
    let expected = [(0, "a/slow-and-busier"), (11_000, "a/1"), (13_000, "a/2"), (15_000, "a/3")];
    assert_eq!(*seen.lock(), expected.map(|(at, what)| (at, what.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn with_a_limit_a_place_is_held_until_the_answer() {
    let seen = Seen::default();
    let permits = ConcurrencyLimiter::new("own", 1).unwrap().with_clock(TokioClock::new());
    let layer = RetryAfterLayer::new().limit(ClientRateLimitLayer::at_a_time("own", permits.clone()));
    let client = ServiceBuilder::new().layer(layer).service(partner(&seen));
    let calls = ["slow-1", "slow-2"].map(|path| client.clone().oneshot(call(&format!("http://a/{path}"))));
    futures_util::future::join_all(calls).await;
    assert_eq!(*seen.lock(), [(0, "a/slow-1".to_owned()), (1_000, "a/slow-2".to_owned())]);
    assert_eq!(permits.available(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_wait_may_be_unlimited() {
    let (seen, start) = (Seen::default(), Instant::now());
    let layer = RetryAfterLayer::new().longest(Duration::MAX).max_wait(Duration::MAX);
    let client = ServiceBuilder::new().layer(layer).service(partner(&seen));
    for path in ["for-ever", "x"] {
        client.clone().oneshot(call(&format!("http://a/{path}"))).await.unwrap();
    }
    assert_eq!((start.elapsed().as_secs(), seen.lock().len()), (999_999_999, 2));
}

#[tokio::test(start_paused = true)]
async fn a_host_is_the_same_however_it_is_spelled_and_errors_tell_no_password() {
    let seen = Seen::default();
    let layer = RetryAfterLayer::new().max_wait(Duration::ZERO);
    let client = ServiceBuilder::new().layer(layer).service(partner(&seen));
    client.clone().oneshot(call("http://me:secret@A.example:80/busy")).await.unwrap();
    let error = client.clone().oneshot(call("http://a.example/x")).await.unwrap_err();
    assert_eq!(error.to_string(), "limit `a.example` has no room within 0ns, and nothing was sent: try again in 3s");
    client.oneshot(call("http://a.example:81/x")).await.unwrap();
}

/// Both sides are Diana's: a client that respects the layer's headers is never denied.
#[tokio::test(start_paused = true)]
async fn who_heeds_a_diana_is_never_refused() {
    let rules = Document::new("diana.yaml", "rules: [{name: few, limit: 3/10s, algorithm: fixed_window, status: 429}]");
    let file = RuleFile::read(&rules, &Registry::default()).unwrap();
    let engine: Engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let limited = ServiceBuilder::new()
        .layer(RateLimitLayer::with_engine(Arc::new(engine)))
        .service(service_fn(|_: Request<_>| async { Ok::<_, Infallible>(Response::new(Full::<&[u8]>::default())) }));
    let client = ServiceBuilder::new().layer(RetryAfterLayer::new()).service(limited);
    let start = Instant::now();
    for number in 0..10 {
        let asked = Request::get("http://a/").body(Full::<&[u8]>::default()).unwrap();
        let response = client.clone().oneshot(asked).await.unwrap();
        assert_eq!(response.status(), 200, "call {number} at {:?}", start.elapsed());
    }
    assert!(start.elapsed() >= Duration::from_secs(20), "{:?}", start.elapsed());
}
