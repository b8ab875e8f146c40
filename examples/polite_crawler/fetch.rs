//! One page, and the outcome of the call for it.

use super::client::SentAt;
use super::links;
use diana_client::Overloaded;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Extensions, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Error};
use std::time::Duration;
use tokio::time::Instant;

/// The maximum number of bytes that are read of a page.
const BYTES: usize = 1 << 20;

/// The result of a call.
pub(crate) struct Fetched {
    pub(crate) url: Url,
    pub(crate) outcome: Outcome,
    /// When it was sent, and how long it had waited; `None` if it was not sent.
    pub(crate) sent: Option<(Instant, Duration)>,
}

pub(crate) enum Outcome {
    /// A page, an error, or a redirect; with its links.
    Answered(StatusCode, Vec<Url>),
    /// The host denied it. The client knows when to retry.
    Denied(StatusCode),
    /// The wait would have been too long, and it was not sent.
    Overloaded(Overloaded),
    /// The host is unreachable, or does not speak HTTP.
    Failed(String),
}

pub(crate) async fn fetch(client: ClientWithMiddleware, url: Url) -> Fetched {
    let (requested, mut extensions) = (Instant::now(), Extensions::new());
    let outcome = outcome(&client, &url, &mut extensions).await.unwrap_or_else(|error| match error {
        // Distinguishes an error of the limits from others.
        Error::Middleware(error) => match error.downcast::<Overloaded>() {
            Ok(overloaded) => Outcome::Overloaded(overloaded),
            Err(other) => Outcome::Failed(other.to_string()),
        },
        Error::Reqwest(error) => Outcome::Failed(error.without_url().to_string()),
    });
    let sent = extensions.get::<SentAt>().map(|sent| (sent.0, sent.0 - requested));
    Fetched { url, outcome, sent }
}

async fn outcome(client: &ClientWithMiddleware, url: &Url, extensions: &mut Extensions) -> Result<Outcome, Error> {
    let request = client.get(url.clone()).build()?;
    let response = client.execute_with_extensions(request, extensions).await?;
    let (status, headers) = (response.status(), response.headers());
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return Ok(Outcome::Denied(status));
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_page = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"));
    let links = match text(LOCATION).filter(|_| status.is_redirection()) {
        Some(location) => url.join(location).into_iter().collect(),
        None if is_page => links::of(url, &body(response).await?),
        None => Vec::new(),
    };
    Ok(Outcome::Answered(status, links))
}

/// Reads the beginning of a body.
pub(crate) async fn body(mut response: Response) -> Result<String, Error> {
    let mut bytes = Vec::new();
    while bytes.len() < BYTES
        && let Some(chunk) = response.chunk().await?
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(BYTES);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
