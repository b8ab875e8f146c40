//! The example `axum_service`, started as users start it and called over TCP.

use crate::program::Program;
use bytes::Bytes;
use diana_testing::RedisServer;
use futures_util::future::join_all;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// The service and its address.
struct Service {
    _program: Program,
    url: String,
}

impl Service {
    fn start(redis: Option<&RedisServer>) -> Self {
        let mut program = Program::of("axum_service");
        program.arg("127.0.0.1:0");
        match redis {
            Some(redis) => program.env("REDIS_URL", redis.url()),
            None => program.env_remove("REDIS_URL"),
        };
        let (program, line) = Program::start(program, |line| line.contains("with the rules in"));
        let url = line.strip_prefix("listening on ").and_then(|rest| rest.split_once(',')).unwrap().0.to_owned();
        Self { _program: program, url }
    }

    async fn send(&self, method: Method, path: &str, account: &str) -> Response<String> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url)).header("x-account", account);
        let (head, body) = client.request(request.body(Empty::new()).unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response::from_parts(head, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str, account: &str) -> (u16, String) {
        let response = self.send(Method::GET, path, account).await;
        (response.status().as_u16(), response.into_body())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_responds_and_every_limit_denies() {
    let service = Service::start(None);
    let hello = service.send(Method::GET, "/", "ann").await;
    assert_eq!((hello.status().as_u16(), hello.body().as_str()), (200, "hello\n"));
    assert!(hello.headers()["ratelimit"].to_str().unwrap().starts_with("\"each-client\";r=99;"), "{hello:?}");

    // A burst of five, and the last one waits; how long is tested in the library.
    let searches = join_all((0..6).map(|_| service.get("/search?words=crab", "ann"))).await;
    assert!(searches.iter().all(|(status, body)| (*status, body.as_str()) == (200, "nothing found for crab\n")));
    // Far more than a second of the rate: some would wait too long.
    let searches = join_all((0..20).map(|_| service.get("/search?words=crab", "bob"))).await;
    assert!(searches.iter().any(|(status, _)| *status == 429), "{searches:?}");

    let code = service.send(Method::POST, "/codes/555-1234", "ann").await;
    assert_eq!((code.status().as_u16(), code.body().as_str()), (200, "a code is on its way to 555-1234\n"));
    let code = service.send(Method::POST, "/codes/555-1234", "bob").await;
    assert_eq!(code.status(), 429);
    assert!(code.body().contains(r#""violated-policies":["codes"]"#), "{code:?}");
    assert!(code.headers().contains_key("retry-after"));

    let mut exports = Vec::new();
    for account in ["ann", "ann", "ann", "ann", "bob"] {
        exports.push(service.get("/export", account).await.0);
    }
    assert_eq!(exports, [200, 200, 200, 429, 200]);

    let uploads = join_all((0..3).map(|_| service.send(Method::POST, "/upload", "ann"))).await;
    assert!(uploads.iter().all(|upload| upload.body() == "0 bytes, thank you\n"), "{uploads:?}");
    assert_eq!(service.get("/orders", "ann").await, (200, "select * from orders: 3 rows\n".to_owned()));
    assert_eq!(service.get("/rates", "ann").await, (200, "1 crab is 7 shrimps\n".to_owned()));
    let (status, feed) = service.get("/feed", "ann").await;
    assert_eq!((status, feed.lines().count(), feed.lines().last()), (200, 20, Some("line 20")));
    let (status, film) = service.get("/film", "ann").await;
    assert_eq!((status, film.len()), (200, 200 << 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_share_a_limit_on_a_function() {
    let redis = RedisServer::start().unwrap();
    let both = [Service::start(Some(&redis)), Service::start(Some(&redis))];
    let mut exports = Vec::new();
    for service in both.iter().cycle().take(5) {
        exports.push(service.get("/export", "ann").await.0);
    }
    assert_eq!(exports, [200, 200, 200, 429, 429]);
}
