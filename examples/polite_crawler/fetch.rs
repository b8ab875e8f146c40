//! One page, and what became of the call for it.

use super::client::Departed;
use super::links;
use diana_http::Overloaded;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{Extensions, StatusCode};
use reqwest::{Response, Url};
use reqwest_middleware::{ClientWithMiddleware, Error};
use std::time::Duration;
use tokio::time::Instant;

/// Of a page that is longer, only this much is read.
const BYTES: usize = 1 << 20;

/// What became of a call.
pub(crate) struct Fetched {
    pub(crate) url: Url,
    pub(crate) outcome: Outcome,
    /// When it went out, and how long it had waited for that; nothing if it was not sent.
    pub(crate) sent: Option<(Instant, Duration)>,
}

pub(crate) enum Outcome {
    /// A page, an error, or a redirect; with where it leads.
    ResponseClass(StatusCode, Vec<Url>),
    /// The host wants to be left alone for now. The client knows until when.
    Denial(StatusCode),
    /// Its turn would not have come soon enough, and it was not sent.
    Overloaded(Overloaded),
    /// The host can't be reached, or does not speak HTTP.
    Failed(String),
}

pub(crate) async fn fetch(client: ClientWithMiddleware, url: Url) -> Fetched {
    let (asked, mut extensions) = (Instant::now(), Extensions::new());
    let outcome = outcome(&client, &url, &mut extensions).await.unwrap_or_else(|error| match error {
        // This is how an error of the limits is told from others.
        Error::Middleware(error) => match error.downcast::<Overloaded>() {
            Ok(busy) => Outcome::Overloaded(busy),
            Err(other) => Outcome::Failed(other.to_string()),
        },
        Error::Reqwest(error) => Outcome::Failed(error.without_url().to_string()),
    });
    let sent = extensions.get::<Departed>().map(|departed| (departed.0, departed.0 - asked));
    Fetched { url, outcome, sent }
}

async fn outcome(client: &ClientWithMiddleware, url: &Url, extensions: &mut Extensions) -> Result<Outcome, Error> {
    let request = client.get(url.clone()).build()?;
    let response = client.execute_with_extensions(request, extensions).await?;
    let (status, headers) = (response.status(), response.headers());
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        return Ok(Outcome::Denial(status));
    }
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_page = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html"));
    let links = match text(LOCATION).filter(|_| status.is_redirection()) {
        Some(location) => url.join(location).into_iter().collect(),
        None if is_page => links::of(url, &body(response).await?),
        None => Vec::new(),
    };
    Ok(Outcome::ResponseClass(status, links))
}

/// The beginning of a body.
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
