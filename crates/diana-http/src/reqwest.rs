//! The layers for clients, for reqwest (feature `reqwest`).
//!
//! A `reqwest::Client` takes them in two ways, with the same limits, patience and pauses:
//!
//! - as middleware of `reqwest_middleware`, if you want to go on writing `client.get(url).send()`. This is the one to begin with;
//! - as tower layers, since the client is a `Service<reqwest::Request>`, if you have a stack of tower layers anyway.
//!
//! # What always holds (tests/reqwest)
//! - What `OutgoingLayer` and `HeedLayer` promise: these are the same waits, not others like them.
//! - A call whose turn does not come is never sent, and the error inside is a [`TooBusy`](crate::TooBusy).
//! - A call that is dropped, before or after it is sent, gives back what it took.

use crate::call::{self, HttpAnswer, HttpCall};
use crate::filter::Filter;
use crate::heeding::HeedLayer;
use crate::outgoing::{OutgoingLayer, OutgoingLimit, Turn, rules};
use crate::pass::Pass;
use ::reqwest::{Request, Response, Url};
use async_trait::async_trait;
use diana::core::Store;
use http::{Extensions, HeaderMap, StatusCode, Uri};
use reqwest_middleware::{Error, Middleware, Next, Result};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

/// Calls of reqwest wait for their turn (feature `reqwest`).
///
/// ```
/// use diana::core::{Limiter, Quota};
/// use diana_http::{OutgoingLayer, TooBusy};
/// use reqwest_middleware::{ClientBuilder, Error};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// # let url = format!("http://{}/", server.local_addr()?);
/// # tokio::spawn(async { axum::serve(server, axum::Router::new()).await });
/// let limit = OutgoingLayer::new("partner", Limiter::new("1/h".parse::<Quota>()?));
/// let client = ClientBuilder::new(reqwest::Client::new()).with(limit.patience(Duration::from_secs(5))).build();
///
/// assert!(client.get(&url).send().await.is_ok());
/// match client.get(&url).send().await {
///     Err(Error::Middleware(error)) => {
///         let busy = error.downcast_ref::<TooBusy>().expect("no other middleware fails here");
///         println!("not sent, as {busy}");
///         assert_eq!(&*busy.limit, "partner");
///     }
///     other => unreachable!("it is the second one within an hour, but {other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// A limit for each host: `OutgoingLayer::keyed(name, limiter, HttpCall::host)`.
///
/// Redirects are followed inside of the client, as part of one call. Where each of them should wait for a turn of its own, build
/// the client with `redirect::Policy::none()` and follow them yourself.
#[async_trait]
impl<L: OutgoingLimit<Request>> Middleware for OutgoingLayer<L> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let _held = self.turn(&request).await.map_err(Error::middleware)?;
        next.run(request, extensions).await
    }
}

/// Calls of reqwest heed `Retry-After` and `RateLimit` (feature `reqwest`).
///
/// ```
/// use diana::core::{KeyedLimiter, Quota};
/// use diana_http::{HeedLayer, HttpCall, OutgoingLayer};
/// use reqwest_middleware::ClientBuilder;
///
/// let each_host = KeyedLimiter::new("10/s".parse::<Quota>()?);
/// let client = ClientBuilder::new(reqwest::Client::new())
///     .with(HeedLayer::new().limit(OutgoingLayer::keyed("each-host", each_host, HttpCall::host)))
///     .build();
/// # drop(client);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A call that would have to wait too long fails as one does that has no turn: with a [`TooBusy`](crate::TooBusy) inside of
/// `Error::Middleware`, whose `limit` is the host. If a redirect led to the one who asks for a pause, both hosts are left alone.
#[async_trait]
impl<L: OutgoingLimit<Request>> Middleware for HeedLayer<L> {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let mut waiting = self.wait(&request);
        let _held = poll_fn(|context| waiting.poll(&request, context)).await.map_err(Error::middleware)?;
        let response = next.run(request, extensions).await?;
        waiting.heard(&response);
        Ok(response)
    }
}

impl HttpCall for Request {
    fn host(&self) -> Option<String> {
        host(self.url())
    }
}

impl HttpAnswer for Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn answered_by(&self) -> Option<String> {
        host(self.url())
    }
}

fn host(url: &Url) -> Option<String> {
    Some(call::name(Some(url.scheme()), url.host_str()?, url.port()))
}

impl<S: Store + 'static> OutgoingLimit<Request> for Filter<S> {
    type Held = Pass<S>;

    fn turn(self: Arc<Self>, request: &Request, patience: Duration) -> Turn<Pass<S>> {
        // What is no URI (it is too long) is not sent either: reqwest says so when its turn is.
        let uri = request.url().as_str().parse().unwrap_or_else(|_| Uri::default());
        Box::pin(rules::turn(self, rules::head(request.method(), uri, request.headers()), patience))
    }
}
