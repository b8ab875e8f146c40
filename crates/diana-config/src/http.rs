//! A config server over HTTP: the response to a GET is the document.
//!
//! After a response with an `ETag`, the next request has `If-None-Match`, and a 304 is cheap. At most five redirects
//! are followed: never from https to http, and credentials are sent only to the origin of the URL.

use super::backoff::jittered;
use super::client::{Client, RequestBody, body};
use super::coordinator::SourceDocument;
use super::file::text;
use super::remote_url::{POLL, Remote};
use super::remote_watcher::{Label, RemoteEvent, RemoteFailure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use diana_rules::Document;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, ETAG, HeaderValue, IF_NONE_MATCH, LOCATION, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use std::time::Duration;
use tokio::time::Instant;
use url::Url;

const MAX_REDIRECTS: usize = 5;

/// The minimum time between requests to a server that does not support long polling.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    url: Url,
    authorization: Authorization,
    poll: Duration,
    long_poll: Option<Duration>,
    timeout: Duration,
    label: Label,
    /// The `ETag` of the last document.
    etag: Option<HeaderValue>,
    /// The time of the next request; `None` before the first request and after a failure.
    due: Option<Instant>,
}

/// The `Authorization` header.
#[derive(Debug)]
enum Authorization {
    None,
    Sent(HeaderValue),
    /// The value is not a valid header. No request is sent without it.
    Invalid,
}

impl Http {
    pub(super) fn new(url: Url, remote: Remote, label: Label) -> Self {
        let Remote { token, credentials, poll, long_poll, timeout, .. } = remote;
        let authorization = match (token, credentials) {
            (Some(token), _) => Some(format!("Bearer {}", token.reveal())),
            (None, Some((user, password))) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{}", password.reveal()))))
            }
            (None, None) => None,
        };
        let authorization = match authorization.map(HeaderValue::try_from) {
            Some(Ok(mut value)) => {
                value.set_sensitive(true);
                Authorization::Sent(value)
            }
            Some(Err(_)) => Authorization::Invalid,
            None => Authorization::None,
        };
        let client = Client::new(timeout);
        let poll = poll.unwrap_or(POLL);
        Self { client, url, authorization, poll, long_poll, timeout, label, etag: None, due: None }
    }

    pub(super) async fn read(&mut self) -> Result<SourceDocument, RemoteFailure> {
        self.etag = None;
        match self.fetch(None).await? {
            RemoteEvent::Document(document) => Ok(document),
            RemoteEvent::Same | RemoteEvent::Absent(_) => {
                Err(RemoteFailure::no_document("unexpected status 304 for an unconditional request"))
            }
        }
    }

    pub(super) async fn next(&mut self) -> Result<RemoteEvent, RemoteFailure> {
        if let Some(due) = self.due {
            tokio::time::sleep_until(due).await;
        }
        // Without a known document, there is nothing to wait for.
        let wait = self.long_poll.filter(|_| self.etag.is_some());
        self.fetch(wait).await
    }

    async fn fetch(&mut self, wait: Option<Duration>) -> Result<RemoteEvent, RemoteFailure> {
        self.due = None;
        let began = Instant::now();
        let limit = self.timeout + wait.unwrap_or_default();
        let response = self.follow(wait, limit).await?;
        let event = match response.status() {
            StatusCode::OK => {
                let etag = response.headers().get(ETAG).cloned();
                let bytes = body(response, Document::MAX_SIZE, self.timeout).await?;
                let text = text(bytes).map_err(RemoteFailure::no_document)?;
                let version = etag.as_ref().and_then(|etag| etag.to_str().ok()).map(str::to_owned);
                self.etag = etag;
                RemoteEvent::Document(self.label.document(text, version))
            }
            StatusCode::NOT_MODIFIED => RemoteEvent::Same,
            status => return Err(RemoteFailure::no_document(format!("unexpected status {status}"))),
        };
        self.due = Some(match self.long_poll {
            Some(_) => began + MIN_INTERVAL,
            None => Instant::now() + jittered(self.poll),
        });
        Ok(event)
    }

    /// Follows redirects and returns the final response.
    async fn follow(&self, wait: Option<Duration>, limit: Duration) -> Result<Response<Incoming>, RemoteFailure> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let request = self.request(&url, wait)?;
            let response = self.client.send(request, limit).await.map_err(RemoteFailure::unreachable)?;
            let is_redirect = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            if !is_redirect {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
            let next = location.and_then(|location| url.join(location).ok());
            let next = next.ok_or_else(|| RemoteFailure::no_document("redirect without a valid `location`"))?;
            match (url.scheme(), next.scheme()) {
                ("https", "https") | ("http", "http" | "https") => url = next,
                (from, to) => {
                    return Err(RemoteFailure::no_document(format!("redirect from {from} to {to} is not allowed")));
                }
            }
        }
        Err(RemoteFailure::no_document(format!("more than {MAX_REDIRECTS} redirects")))
    }

    fn request(&self, url: &Url, wait: Option<Duration>) -> Result<Request<RequestBody>, RemoteFailure> {
        let mut request_url = url.clone();
        // These can't fail if there is a host. Credentials in a redirect's URL are not used.
        let _ = request_url.set_username("");
        let _ = request_url.set_password(None);
        request_url.set_fragment(None);
        let mut request = Request::get(request_url.as_str())
            .header(USER_AGENT, concat!("diana/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, "application/yaml, application/json, application/toml, text/plain, */*;q=0.5");
        if let Some(etag) = &self.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(wait) = wait {
            request = request.header("prefer", format!("wait={}", wait.as_secs()));
        }
        match &self.authorization {
            Authorization::Sent(value) if url.origin() == self.url.origin() => {
                request = request.header(AUTHORIZATION, value);
            }
            Authorization::Invalid => {
                return Err(RemoteFailure::unreachable("invalid token: it can't be sent in a header"));
            }
            Authorization::Sent(_) | Authorization::None => {}
        }
        request
            .body(RequestBody::default())
            .map_err(|error| RemoteFailure::unreachable(format!("invalid request: {error}")))
    }
}
