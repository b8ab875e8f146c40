//! The response of an [`HttpServer`](super::HttpServer) to one request.

use super::{Misbehave, Shared};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{AUTHORIZATION, ETAG, IF_NONE_MATCH, LOCATION};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

type ResponseBody = BoxBody<Bytes, Infallible>;

/// Serves connections forever.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(respond(&shared, request).await) }
            });
            // A client that disconnects is not an error.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn respond(shared: &Shared, request: Request<Incoming>) -> Response<ResponseBody> {
    shared.requests.fetch_add(1, Ordering::SeqCst);
    let header = |name: &str| Some(request.headers().get(name)?.to_str().ok()?.to_owned());
    let (token, misbehave) = {
        let mut state = shared.state.lock();
        let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
        state.headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        (state.token.clone(), state.misbehave.clone())
    };
    if token.is_some_and(|token| header(AUTHORIZATION.as_str()) != Some(format!("Bearer {token}"))) {
        return status(401);
    }
    match misbehave {
        Misbehave::No => {
            let known = header(IF_NONE_MATCH.as_str());
            if let Some(wait) = header("prefer").and_then(|prefer| prefer.strip_prefix("wait=")?.parse().ok()) {
                wait_for_change(shared, known.as_deref(), Duration::from_secs(wait)).await;
            }
            document(shared, known.as_deref())
        }
        Misbehave::NoEtag => body(shared.state.lock().document.clone()),
        Misbehave::Status(code) => status(code),
        Misbehave::Bytes(bytes) => body(bytes),
        Misbehave::Endless => Response::new(Endless.boxed()),
        Misbehave::Silence => std::future::pending().await,
        Misbehave::Redirect(url) => {
            let mut response = status(302);
            if let Ok(url) = url.try_into() {
                response.headers_mut().insert(LOCATION, url);
            }
            response
        }
    }
}

/// Waits until the document differs from the known one.
async fn wait_for_change(shared: &Shared, known: Option<&str>, wait: Duration) {
    /// Decrements the count on drop, also if the client disconnects and this future is dropped.
    struct PendingPoll<'a>(&'a Shared);
    impl Drop for PendingPoll<'_> {
        fn drop(&mut self) {
            self.0.held.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let mut versions = shared.version.subscribe();
    shared.held.fetch_add(1, Ordering::SeqCst);
    let _pending = PendingPoll(shared);
    let changed = versions.wait_for(|version| Some(etag(*version).as_str()) != known);
    // Neither a timeout nor a closed channel is an error: the answer is the current document then.
    let _ = tokio::time::timeout(wait, changed).await;
}

fn document(shared: &Shared, known: Option<&str>) -> Response<ResponseBody> {
    let state = shared.state.lock();
    let etag = etag(*shared.version.borrow());
    let mut response = if known == Some(&etag) {
        shared.unchanged.fetch_add(1, Ordering::SeqCst);
        status(304)
    } else {
        body(state.document.clone())
    };
    if let Ok(etag) = etag.try_into() {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

fn etag(version: u64) -> String {
    format!("\"{version}\"")
}

fn body(bytes: impl Into<Bytes>) -> Response<ResponseBody> {
    Response::new(Full::new(bytes.into()).boxed())
}

fn status(code: u16) -> Response<ResponseBody> {
    let mut response = body(Bytes::new());
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

/// A body without an end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'#'; 65_536])))))
    }
}
