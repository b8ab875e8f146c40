//! A small HTTP client over hyper, for config servers: every response is bounded in time and size.
//!
//! It uses plain hyper, since little more is needed ([`http`](super::http) follows redirects by its own rules) and the
//! gateway uses hyper anyway. TLS is rustls on ring with the system's trusted certificates, as for Redis.

use super::file::too_large;
use super::remote_watcher::RemoteFailure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::time::Duration;

/// The body of a request.
pub(super) type RequestBody = Full<Bytes>;

/// The TCP keepalive time and interval; there are three probes.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// A client. Clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct Client {
    inner: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, RequestBody>,
}

impl Client {
    /// Creates a client with this connect timeout.
    pub(super) fn new(connect: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(connect));
        http.set_keepalive(Some(KEEPALIVE));
        http.set_keepalive_interval(Some(KEEPALIVE));
        http.set_keepalive_retries(Some(3));
        let provider = rustls::crypto::ring::default_provider();
        let tls = match HttpsConnectorBuilder::new().with_provider_and_native_roots(provider) {
            Ok(tls) => tls,
            Err(error) => {
                // Irrelevant for a config server without TLS; with TLS, each request will report the error.
                tracing::debug!(%error, "the system has no trusted certificates");
                HttpsConnectorBuilder::new().with_tls_config(without_trusted_certificates())
            }
        };
        let connector = tls.https_or_http().enable_http1().wrap_connector(http);
        let mut builder = hyper_util::client::legacy::Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(60)).pool_max_idle_per_host(2);
        Self { inner: builder.build(connector) }
    }

    /// Sends a request and returns the response head, if it arrives within `limit`.
    pub(super) async fn send(
        &self,
        request: Request<RequestBody>,
        limit: Duration,
    ) -> Result<Response<Incoming>, String> {
        match tokio::time::timeout(limit, self.inner.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err(format!("no response within {limit:?}")),
        }
    }
}

/// Reads a response body, if it has at most `max` bytes and arrives within `limit`.
pub(super) async fn body(response: Response<Incoming>, max: usize, limit: Duration) -> Result<Vec<u8>, RemoteFailure> {
    let mut body = response.into_body();
    if body.size_hint().lower() > max as u64 {
        return Err(RemoteFailure::no_document(too_large()));
    }
    let reading = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| RemoteFailure::unreachable(format!("response interrupted: {}", chain(&error))))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > max {
                return Err(RemoteFailure::no_document(too_large()));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    let read = tokio::time::timeout(limit, reading).await;
    read.unwrap_or_else(|_| Err(RemoteFailure::unreachable(format!("response incomplete after {limit:?}"))))
}

fn without_trusted_certificates() -> rustls::ClientConfig {
    // The builder panics without a default provider. An error means that the program has set its own, which works as
    // well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

/// Formats an error with its causes, since the outermost error has little information.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.ends_with(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    clean(&text)
}

/// Cleans untrusted text for a log line: no control characters, and a bounded length.
pub(super) fn clean(text: &str) -> String {
    let printable = |character: char| if character.is_control() { ' ' } else { character };
    text.trim().chars().take(200).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_without_trusted_certificates() {
        let config = without_trusted_certificates();
        assert!(!config.crypto_provider().cipher_suites.is_empty());
    }
}
