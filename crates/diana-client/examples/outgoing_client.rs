//! A client that keeps its calls under a limit, by waiting.
//!
//! ```text
//! cargo run -p diana-client --example outgoing_client -- http://127.0.0.1:3000/
//! ```

use bytes::Bytes;
use diana::{Limiter, Quota};
use diana_client::{ClientRateLimit, ClientRateLimitLayer};
use http::Uri;
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::error::Error;
use std::time::Duration;
use tower::{Service, ServiceBuilder, ServiceExt};

// docs: begin
pub(crate) type LimitedClient = ClientRateLimit<Limiter, Client<HttpConnector, Empty<Bytes>>>;

/// A client whose calls wait for `quota`. Clones share it.
pub(crate) fn client(quota: Quota, max_wait: Duration) -> LimitedClient {
    let layer = ClientRateLimitLayer::new("partner", Limiter::new(quota)).max_wait(max_wait);
    ServiceBuilder::new().layer(layer).service(Client::builder(TokioExecutor::new()).build_http())
}

pub(crate) async fn get(client: &mut LimitedClient, url: &Uri) -> Result<u16, Box<dyn Error>> {
    let request = http::Request::get(url).body(Empty::new())?;
    Ok(client.ready().await?.call(request).await?.status().as_u16())
}
// docs: end

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:3000/".to_owned()).parse()?;
    let mut client = client("2/s".parse()?, Duration::from_secs(10));
    for call in 1..=10 {
        println!("call {call}: {}", get(&mut client, &url).await?);
    }
    Ok(())
}
