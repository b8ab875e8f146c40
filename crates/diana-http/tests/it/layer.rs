//! The layer: which requests reach the inner service, and when permits are released.

use bytes::Bytes;
use diana::EngineOptions;
use diana::TokioClock;
use diana::rules::http_settings::SpellingPolicy;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::{ClientAddress, Filter, FilterOptions, RateLimitLayer, ReroutedTo, ThrottledBody};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

fn file(rules: &str) -> RuleFile {
    let document = Document::new("diana.yaml", format!("rules: [{rules}]"));
    RuleFile::read_with(&document, &Registry::default(), |_| None).unwrap_or_else(|problems| panic!("{problems}"))
}

fn filter(rules: &str) -> Filter {
    let file = file(rules);
    Filter::new(EngineOptions::of(&file).clock(TokioClock::new()).build(&file))
}

fn layer(rules: &str) -> RateLimitLayer {
    RateLimitLayer::of(filter(rules))
}

fn request(path: &str, ip: u8) -> Request<Full<Bytes>> {
    let mut request = Request::get(path).body(Full::default()).unwrap();
    request.extensions_mut().insert(ClientAddress(IpAddr::from([203, 0, 113, ip])));
    request
}

/// A server that records its requests, and responds with as many bytes as the path states.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<String>>>);

impl Server {
    fn service<B: Send + 'static>(
        &self,
    ) -> impl Service<Request<B>, Response = Response<Full<Bytes>>, Error = Infallible, Future: Send> + Clone + use<B>
    {
        let server = self.clone();
        service_fn(move |request: Request<B>| {
            let rerouted = request.extensions().get::<ReroutedTo>();
            let entry = rerouted.map_or_else(|| request.uri().path().to_owned(), |to| format!("to {}", to.0));
            let size = request.uri().path().trim_start_matches('/').parse::<usize>().unwrap_or(5);
            server.0.lock().push(entry);
            std::future::ready(Ok(Response::new(Full::new(Bytes::from(vec![b'x'; size])))))
        })
    }

    fn requests(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

#[tokio::test(start_paused = true)]
async fn a_denied_request_does_not_reach_the_service() {
    let server = Server::default();
    let service =
        ServiceBuilder::new().layer(layer("{name: each, by: ip, limit: 1/h, status: 429}")).service(server.service());
    assert_eq!(service.clone().oneshot(request("/a", 7)).await.unwrap().status(), StatusCode::OK);
    let denied = service.clone().oneshot(request("/b", 7)).await.unwrap();
    assert_eq!((denied.status().as_u16(), &denied.headers()["retry-after"]), (429, &"3600".parse().unwrap()));
    assert!(!denied.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(service.oneshot(request("/c", 8)).await.unwrap().status(), StatusCode::OK);
    assert_eq!(server.requests(), ["/a", "/c"]);
}

/// Rules and services may interpret these differently. No rule is checked, so nothing is charged, and no request waits.
#[tokio::test(start_paused = true)]
async fn ambiguous_requests_are_rejected() {
    let server = Server::default();
    let rule = "{name: one, limit: 1/h, status: 429}";
    let file = file(rule);
    let engine = EngineOptions::of(&file).clock(TokioClock::new()).build(&file);
    let options = FilterOptions::default().escaped_slash(SpellingPolicy::Deny);
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::of(Filter::with_options(engine, options)))
        .service(server.service());
    let with_host = |host: &str| {
        let mut request = request("/a", 7);
        request.headers_mut().append("host", host.parse().unwrap());
        request
    };
    let mut twice = with_host("a");
    twice.headers_mut().append("host", "b".parse().unwrap());
    let ambiguous = [
        request("/a%2fb", 7),
        request("/a%5Cb", 7),
        request("/x%2f..%2fa", 7),
        request("/a\\b/../a", 7),
        with_host("a:x"),
        with_host("a:80,b"),
        twice,
    ];
    for request in ambiguous {
        let message = format!("{request:?}");
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), StatusCode::BAD_REQUEST, "{message}");
    }
    assert_eq!(service.clone().oneshot(with_host("a:80")).await.unwrap().status(), StatusCode::OK);
    assert_eq!(service.oneshot(request("/a", 7)).await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.requests(), ["/a"]);
}

/// A router uses the prefix of a path, a rule its normal form.
#[tokio::test(start_paused = true)]
async fn a_path_with_dot_segments_is_rejected() {
    let server = Server::default();
    let rule = "{name: graphql, match: {path: /graphql/**}, limit: 1/h}";
    let service = ServiceBuilder::new().layer(layer(rule)).service(server.service());
    for path in ["/graphql/../x", "/graphql/%2e%2e/x"] {
        assert_eq!(
            service.clone().oneshot(request(path, 7)).await.unwrap().status(),
            StatusCode::BAD_REQUEST,
            "{path}"
        );
    }
    assert_eq!(server.requests(), <[String; 0]>::default());
    assert_eq!(service.oneshot(request("/graphql/x", 7)).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn uses_the_address_function() {
    let server = Server::default();
    let by_header = |head: &http::request::Parts| head.headers.get("x-peer")?.to_str().ok()?.parse().ok();
    let layer = layer("{name: each, by: ip, limit: 1/h}").client_address(by_header);
    let service = ServiceBuilder::new().layer(layer).service(server.service());
    for (peer, status) in [("192.0.2.1", 200), ("192.0.2.2", 200), ("192.0.2.1", 503)] {
        let mut request = request("/", 7);
        request.headers_mut().insert("x-peer", peer.parse().unwrap());
        assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status, "{peer}");
    }
    // Without the header, the peer counts: leaving it out is no way around the limit.
    for status in [200, 503] {
        assert_eq!(service.clone().oneshot(request("/", 7)).await.unwrap().status(), status);
    }
}

/// The lines that a test logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn requests_without_an_address_share_a_count_and_one_warning() {
    let log = Log::default();
    let writer = log.clone();
    let _logging =
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(move || writer.clone()).finish());
    let rules = "{name: each, by: ip, limit: 2/h}, {name: logins, match: {path: /login}, by: [ip, host], limit: 1/h}, \
                 {name: strict, match: {path: /strict}, by: ip, missing: deny}";
    let service = ServiceBuilder::new().layer(layer(rules)).service(Server::default().service());
    let without_address = |path| service.clone().oneshot(Request::get(path).body(Full::<Bytes>::default()).unwrap());
    assert_eq!(without_address("http://a/strict").await.unwrap().status(), 503);
    assert_eq!(without_address("http://a/login").await.unwrap().status(), 200);
    assert_eq!(without_address("http://a/login").await.unwrap().status(), 503);
    assert_eq!(without_address("http://b/login").await.unwrap().status(), 200);
    assert_eq!(without_address("http://a/").await.unwrap().status(), 503);
    assert_eq!(send(&service).await.status(), 200);
    let log = String::from_utf8(log.0.lock().clone()).unwrap();
    for rule in ["each", "logins", "strict"] {
        let warning = format!("rule `{rule}` counts by the client's address, which is unknown: with axum, serve");
        assert_eq!(log.matches(&warning).count(), 1, "{log}");
    }
    assert!(log.contains("WARN") && log.contains("into_make_service_with_connect_info"), "{log}");
}

async fn send<C, B>(service: &C) -> Response<B>
where
    C: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible> + Clone,
{
    service.clone().oneshot(request("/", 7)).await.unwrap_or_else(|never| match never {})
}

#[tokio::test(start_paused = true)]
async fn permits_are_released_when_the_body_ends() {
    let server = Server::default();
    let service = ServiceBuilder::new().layer(layer("{name: few, concurrent: 1}")).service(server.service());
    let first = send(&service).await;
    assert_eq!(send(&service).await.status(), 503);
    first.into_body().collect().await.unwrap();
    let second = send(&service).await;
    assert_eq!((second.status().as_u16(), send(&service).await.status().as_u16()), (200, 503));
    drop(second);
    assert_eq!(send(&service).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_is_refunded() {
    let server = Server::default();
    let layer = layer("{name: each, limit: 1/s, burst: 1, wait: 10s}");
    let service = ServiceBuilder::new().layer(layer).service(server.service());
    let start = Instant::now();
    assert_eq!(service.clone().oneshot(request("/a", 7)).await.unwrap().status(), 200);
    let cancelled = tokio::time::timeout(Duration::from_millis(100), service.clone().oneshot(request("/b", 7))).await;
    assert!(cancelled.is_err());
    assert_eq!(service.oneshot(request("/c", 7)).await.unwrap().status(), 200);
    // Without the refund this would be 2 s.
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(server.requests(), ["/a", "/c"]);
}

#[tokio::test(start_paused = true)]
async fn rerouted_requests_are_denied_unless_forwarded() {
    let rules = "{name: each, limit: 1/h, over: {reroute: 'http://127.0.0.1:3001'}}";
    for (forwards, status, requests) in [(false, 503, vec!["/a"]), (true, 200, vec!["/a", "to http://127.0.0.1:3001"])]
    {
        let (server, layer) = (Server::default(), layer(rules));
        let layer = if forwards { layer.forward_rerouted() } else { layer };
        let service = ServiceBuilder::new().layer(layer).service(server.service());
        assert_eq!(service.clone().oneshot(request("/a", 7)).await.unwrap().status(), 200);
        let second = service.oneshot(request("/b", 7)).await.unwrap();
        assert_eq!(second.status(), status);
        assert!(second.headers().contains_key("ratelimit"), "{:?}", second.headers());
        assert_eq!(server.requests(), requests);
    }
}

#[tokio::test(start_paused = true)]
async fn the_cost_header_of_a_rerouted_response_is_removed() {
    let layer = layer("{name: each, limit: 1/h, over: {reroute: 'http://127.0.0.1:3001'}}").forward_rerouted();
    let with_cost = service_fn(|request: Request<ThrottledBody<Full<Bytes>>>| {
        let rerouted = request.extensions().get::<ReroutedTo>().is_some();
        let response = Response::builder().header("x-diana-cost", "5").header("x-rerouted", rerouted.to_string());
        std::future::ready(Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap()))
    });
    let service = ServiceBuilder::new().layer(layer).service(with_cost);
    for rerouted in ["false", "true"] {
        let response = service.clone().oneshot(request("/", 7)).await.unwrap();
        assert_eq!(response.headers()["x-rerouted"], rerouted);
        assert!(!response.headers().contains_key("x-diana-cost"), "{:?}", response.headers());
    }
}

#[tokio::test(start_paused = true)]
async fn throttles_both_bodies() {
    let layer = layer("{name: slow, by: request, bandwidth: {rate: 1000B/s, burst: 100B, of: both}}");
    let echo = service_fn(|request: Request<ThrottledBody<Full<Bytes>>>| async move {
        let read = request.into_body().collect().await?.to_bytes();
        Ok::<_, Infallible>(Response::new(Full::new(read)))
    });
    let service = ServiceBuilder::new().layer(layer).service(echo);
    let start = Instant::now();
    let request = Request::post("/").body(Full::new(Bytes::from(vec![b'x'; 600]))).unwrap();
    let response = service.oneshot(request).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(500));
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), 600);
    assert_eq!(start.elapsed(), Duration::from_millis(1_100));
}

#[test]
fn a_file_with_a_shared_store_needs_an_engine() {
    let read = |store: &str| {
        let text = format!("{store}rules: [{{name: a, limit: 1/h}}]");
        RuleFile::read(&Document::new("diana.yaml", text), &Registry::default()).unwrap()
    };
    assert!(RateLimitLayer::new(&read("")).is_ok());
    // With the options of the file: `with_engine` would not trust its proxies.
    let error = RateLimitLayer::new(&read("store: {redis: 'redis://127.0.0.1'}\n")).unwrap_err();
    assert!(error.to_string().contains("FilterOptions::of(&file)"), "{error}");
}
