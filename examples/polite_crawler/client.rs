//! The client: the limits that delay a request before it is sent.

use diana::{KeyedLimiter, Quota};
use diana_client::{ClientRateLimitLayer, RequestHost, RetryAfterLayer};
use http::Extensions;
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};
use tokio::time::Instant;

// docs: begin
/// A client with a rate limit per host, which sends nothing while a host asks for a pause. Clones share the limits.
pub(crate) fn polite(quota: Quota) -> reqwest::Result<ClientWithMiddleware> {
    // Redirects are treated as links: so each is rate limited, and none leads to a host that is not crawled.
    let client = Client::builder().user_agent("polite-crawler").redirect(Policy::none()).build()?;
    let limit = ClientRateLimitLayer::keyed("each-host", KeyedLimiter::new(quota), RequestHost::host);
    Ok(ClientBuilder::new(client).with(RetryAfterLayer::new().limit(limit)).with(RecordSent).build())
}
// docs: end

/// The time at which a call was sent, after all waits.
#[derive(Clone, Copy)]
pub(crate) struct SentAt(pub(crate) Instant);

/// Records when each call is sent. It is the last middleware, and so runs after the others.
struct RecordSent;

#[async_trait::async_trait]
impl Middleware for RecordSent {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        extensions.insert(SentAt(Instant::now()));
        next.run(request, extensions).await
    }
}
