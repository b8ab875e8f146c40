//! A partner's service, which allows two calls a second and says so. We wait for our turn, and heed what it says.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use diana::core::{Limiter, Quota};
use diana_http::{ClientRateLimitLayer, RetryAfter, RetryAfterLayer};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};

/// Calls to the partner. Clones share the limit.
#[derive(Clone)]
pub(crate) struct Partner {
    client: RetryAfter<Client<HttpConnector, Empty<Bytes>>, Limiter>,
    url: String,
}

impl Partner {
    /// Starts a partner of our own, so that the example needs nobody else's.
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/", listener.local_addr()?);
        let partner = Router::new().route("/", get(async || "1 crab is 7 shrimps\n"));
        tokio::spawn(async move { axum::serve(listener, partner).await });

        let limit = ClientRateLimitLayer::new("partner", Limiter::new("2/s".parse::<Quota>()?));
        let client = ServiceBuilder::new()
            .layer(RetryAfterLayer::new().limit(limit).max_wait(Duration::from_secs(3)))
            .service(Client::builder(TokioExecutor::new()).build_http());
        Ok(Self { client, url })
    }

    /// Asks for its rates, when our turn has come.
    pub(crate) async fn rates(&self) -> Result<String, Box<dyn Error + Send + Sync>> {
        let request = Request::get(&self.url).body(Empty::new())?;
        let response = self.client.clone().ready().await?.call(request).await?;
        Ok(String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned())
    }
}
