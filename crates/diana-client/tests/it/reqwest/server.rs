//! The server side: a server on its own port, which records its requests.

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::Notify;

pub(crate) struct TestServer {
    /// Its host and port, as in errors.
    pub(crate) host: String,
    requests: Arc<Mutex<Vec<String>>>,
    arrived: Arc<Notify>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (requests, arrived) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Notify>::default());
        let server = Self { host, requests: Arc::clone(&requests), arrived: Arc::clone(&arrived) };
        let app = Router::new().fallback(move |request: Request| {
            requests.lock().push(request.uri().path().to_owned());
            arrived.notify_one();
            respond(request)
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.host)
    }

    /// Returns the paths of its requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    /// Waits until a request has arrived.
    pub(crate) async fn wait_for_request(&self) {
        self.arrived.notified().await;
    }
}

/// The response depends on the path; `/to?http://b/x` redirects there, and `/never` is not answered.
async fn respond(request: Request) -> Response {
    match request.uri().path() {
        "/busy" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3")]).into_response(),
        "/closed" => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "120")]).into_response(),
        "/last" => [("ratelimit", "\"each-client\";r=0;t=2")].into_response(),
        "/more" => [("ratelimit", "\"each-client\";r=1;t=2")].into_response(),
        "/to" => Redirect::temporary(request.uri().query().unwrap()).into_response(),
        "/never" => std::future::pending().await,
        _ => "hello".into_response(),
    }
}
