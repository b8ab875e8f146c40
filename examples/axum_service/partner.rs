//! A partner's service, which allows two calls per second and reports that limit. The client queues calls, and obeys
//! the reported limit.

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use diana::{Limiter, Quota};
use diana_client::{ClientRateLimitLayer, RetryAfter, RetryAfterLayer};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};

/// A client of the partner. Clones share the limit.
#[derive(Clone)]
pub(crate) struct Partner {
    client: RetryAfter<Client<HttpConnector, Empty<Bytes>>, Limiter>,
    url: String,
}

impl Partner {
    /// Starts a local partner, so that the example needs no other service.
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

    /// Requests its rates, within the limit.
    pub(crate) async fn rates(&self) -> Result<String, Box<dyn Error + Send + Sync>> {
        let request = Request::get(&self.url).body(Empty::new())?;
        let response = self.client.clone().ready().await?.call(request).await?;
        Ok(String::from_utf8_lossy(&response.into_body().collect().await?.to_bytes()).into_owned())
    }
}
