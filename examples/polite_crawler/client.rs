//! The client: the limits that delay a request before it is sent.

use diana::{KeyedLimiter, Quota};
use diana_http::{ClientRateLimitLayer, RequestHost, RetryAfterLayer};
use http::Extensions;
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::time::Instant;

// docs: begin
/// A client that makes no more calls to each host than `quota` says, and none while a host asks for a pause. Clones share it.
pub(crate) fn polite(quota: Quota) -> reqwest::Result<ClientWithMiddleware> {
    // Redirects are links to us: so each has its own turn, and none leads to a host that we have no business with.
    let client = Client::builder().user_agent("polite-crawler").redirect(Policy::none()).build()?;
    let limit = ClientRateLimitLayer::keyed("each-host", KeyedLimiter::new(quota), RequestHost::host);
    Ok(ClientBuilder::new(client).with(RetryAfterLayer::new().limit(limit)).with(Departures).build())
}
// docs: end

/// The time at which a call was sent, after all waits.
#[derive(Clone, Copy)]
pub(crate) struct Departed(pub(crate) Instant);

/// Records when each call is sent. It is the last middleware, and so runs after the others.
struct Departures;

#[async_trait::async_trait]
impl Middleware for Departures {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        extensions.insert(Departed(Instant::now()));
        next.run(request, extensions).await
    }
}
