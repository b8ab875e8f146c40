//! The client layers for reqwest (feature `reqwest`).
//!
//! A `reqwest::Client` supports them in two ways, with the same limits, maximum wait and pauses:
//!
//! - as middleware of `reqwest_middleware`, to keep writing `client.get(url).send()`. This is the recommended way;
//! - as tower layers, since the client is a `Service<reqwest::Request>`, if you have a stack of tower layers anyway.
//!
//! # What always holds (tests/it/reqwest)
//! - The guarantees of `ClientRateLimitLayer` and `RetryAfterLayer`: the implementation is the same.
//! - A call that is not granted is never sent, and the inner error is an [`Overloaded`](crate::Overloaded).
//! - Dropping a call, before or after it is sent, releases its permits.

use crate::client_limit::{ClientLimit, ClientRateLimitLayer, PermitFuture, rules};
use crate::client_messages::{self, RequestHost, ResponseMeta};
use crate::retry_after::RetryAfterLayer;
use ::reqwest::{Request, Response, Url};
use async_trait::async_trait;
use diana_http::{Filter, RequestPermit};
use http::{Extensions, HeaderMap, StatusCode, Uri};
use reqwest_middleware::{Error, Middleware, Next, Result};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// Makes reqwest's calls wait until they are granted (feature `reqwest`).
///
/// ```
/// use diana::{Limiter, Quota};
/// use diana_client::{ClientRateLimitLayer, Overloaded};
/// use reqwest_middleware::{ClientBuilder, Error};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", server.local_addr()?);
/// # tokio::spawn(async { axum::serve(server, axum::Router::new()).await });
/// let limit = ClientRateLimitLayer::new("partner", Limiter::new("1/h".parse::<Quota>()?));
/// let client = ClientBuilder::new(reqwest::Client::new()).with(limit.max_wait(Duration::from_secs(5))).build();
///
/// assert!(client.get(&url).send().await.is_ok());
/// match client.get(&url).send().await {
///     Err(Error::Middleware(error)) => {
///         let overloaded = error.downcast_ref::<Overloaded>().expect("no other middleware fails");
///         println!("{overloaded}");
///         assert_eq!(&*overloaded.limit, "partner");
///     }
///     other => unreachable!("the second call within an hour is denied, but {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// A limit for each host: `ClientRateLimitLayer::keyed(name, limiter, RequestHost::host)`.
///
/// Redirects are followed inside of the client, as part of one call. To limit each of them, build the client with
/// `redirect::Policy::none()` and follow them yourself.
#[async_trait]
impl<L: ClientLimit<Request>> Middleware for ClientRateLimitLayer<L> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let _permit = self.acquire(&request).await.map_err(Error::middleware)?;
        next.run(request, extensions).await
    }
}

/// Makes reqwest's calls respect `Retry-After` and `RateLimit` (feature `reqwest`).
///
/// ```
/// use diana::{KeyedLimiter, Quota};
/// use diana_client::{RetryAfterLayer, RequestHost, ClientRateLimitLayer};
/// use reqwest_middleware::ClientBuilder;
///
/// let each_host = KeyedLimiter::new("10/s".parse::<Quota>()?);
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(RetryAfterLayer::new().limit(ClientRateLimitLayer::keyed("each-host", each_host, RequestHost::host)))
///     .build();
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A call that would have to wait too long fails like a call over a limit: with an [`Overloaded`](crate::Overloaded)
/// inside of `Error::Middleware`, whose `limit` is the host. If a redirect led to the host that asks for a pause, both
/// hosts are paused.
#[async_trait]
impl<L: ClientLimit<Request>> Middleware for RetryAfterLayer<L> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let mut wait = self.wait(&request);
        let _permit = poll_fn(|context| wait.poll(&request, context)).await.map_err(Error::middleware)?;
        let response = next.run(request, extensions).await?;
        wait.observe(&response);
        Ok(response)
    }
}

impl RequestHost for Request {
    fn host(&self) -> Option<String> {
        host(self.url())
    }
}

impl ResponseMeta for Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn final_host(&self) -> Option<String> {
        host(self.url())
    }
}

fn host(url: &Url) -> Option<String> {
    Some(client_messages::host_name(Some(url.scheme()), url.host_str()?, url.port()))
}

impl ClientLimit<Request> for Filter {
    type Permit = RequestPermit;

    fn acquire(self: Arc<Self>, request: &Request, max_wait: Duration) -> PermitFuture<RequestPermit> {
        // An invalid URI (it is too long) is not sent either: reqwest reports it when the call is granted.
        let uri = request.url().as_str().parse().unwrap_or_else(|_| Uri::default());
        Box::pin(rules::acquire(self, rules::head(request.method(), uri, request.headers()), max_wait))
    }
}
