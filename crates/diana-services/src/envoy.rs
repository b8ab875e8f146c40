//! Services for Envoy, over gRPC: the rate limit service and external authorization, version 3; health and reflection.
//!
//! # What always holds (tests/it/services/)
//! - Messages, headers, streams and the time of silent connections are bounded.
//! - A call that is cancelled, or whose deadline passes while it waits, has charged nothing.
//! - Nothing that a client of Envoy sends makes a call fail: after an error, Envoy may let the request pass.
//! - Streams that only wait (health, reflection) do not delay the shutdown.

mod call;
mod descriptor;
mod descriptor_status;
mod ext_authz;
mod field_count;
mod health;
mod overrides;
mod rate_limit;
mod unary_call;

use bytes::{Bytes, BytesMut};
use call::{CallService, CallTimeouts};
use diana::Engine;
use diana_http::{Filter, FilterOptions};
use diana_metrics::{ServiceMetrics, ServiceShard};
use diana_net::Rewind;
use diana_net::ServerSettings;
use diana_net::TotalMemory;
use health::HealthService;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
pub(crate) use overrides::Overrides;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tonic::Status;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

/// The messages, generated from `proto/`.
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
mod proto {
    /// `envoy.service.ratelimit.v3`
    pub(crate) mod ratelimit {
        pub(crate) use super::envoy::service::ratelimit::v3::*;
    }
    /// `envoy.service.auth.v3`
    pub(crate) mod auth {
        pub(crate) use super::envoy::service::auth::v3::*;
    }
    include!(concat!(env!("OUT_DIR"), "/_includes.rs"));
    /// The descriptions of all files, for reflection.
    pub(crate) const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}

/// The largest message for the rate limit service: some copies of the longest header that Envoy accepts by default, 60 KiB.
const MAX_MESSAGE: usize = 256 << 10;
/// The largest list of headers of a call. Envoy passes on some of its client's, such as those for tracing, and by default
/// accepts 60 KiB from it.
const MAX_HEADERS: u32 = 64 << 10;
/// The maximum number of concurrent calls of a connection.
const MAX_STREAMS: u32 = 1_024;
/// The bytes that a connection may send before they are read, of all its calls together.
const RECEIVE_WINDOW: u32 = 128 << 10;
/// The largest message for health and reflection: a name.
const MAX_NAME: usize = 4 << 10;
/// The interval of pings on a silent connection, and the timeout of its response.
const PING_INTERVAL: Duration = Duration::from_secs(60);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// The first bytes of every client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The services on one thread.
#[derive(Clone)]
pub(crate) struct EnvoyService {
    state: Arc<EnvoyState>,
    /// Health and reflection.
    routes: Routes,
    /// The timeout of the first bytes of a connection.
    preface_timeout: Duration,
    /// The timeout of the message of a call.
    message_timeout: Duration,
}

/// The settings of the services, and what their threads share.
pub(crate) struct EnvoyOptions {
    pub(crate) settings: Arc<ServerSettings>,
    /// Whether requests are denied while the shared store is unreachable.
    pub(crate) denies_when_down: bool,
    pub(crate) overrides: Arc<Overrides>,
    pub(crate) memory: Arc<TotalMemory>,
}

/// The state that all calls on one thread use.
struct EnvoyState {
    engine: Engine,
    filter: Filter,
    options: EnvoyOptions,
    metrics: ServiceMetrics,
    thread: usize,
}

impl EnvoyState {
    fn metrics(&self) -> &ServiceShard {
        self.metrics.shard(self.thread)
    }
}

/// Whether a request was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Yes,
    No,
}

impl EnvoyService {
    pub(crate) fn new(
        engine: Engine,
        options: EnvoyOptions,
        metrics: ServiceMetrics,
        thread: usize,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let settings = &options.settings;
        let (preface_timeout, message_timeout) = (settings.timeouts.header, settings.timeouts.body);
        let filter = Filter::with_options(engine.clone(), FilterOptions::new(settings.http.clone()));
        let state = Arc::new(EnvoyState { engine, filter, options, metrics, thread });
        let health = HealthServer::new(HealthService::new(stop)).max_decoding_message_size(MAX_NAME);
        let mut routes = Routes::new(health);
        // Without reflection, clients need the files of the protocol; nothing else.
        let reflection =
            || tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(proto::DESCRIPTORS);
        match (reflection().build_v1(), reflection().build_v1alpha()) {
            (Ok(newer), Ok(older)) => {
                let newer = newer.max_decoding_message_size(MAX_NAME);
                routes = routes.add_service(newer).add_service(older.max_decoding_message_size(MAX_NAME));
            }
            (Err(error), _) | (_, Err(error)) => tracing::warn!("no gRPC reflection: {error}"),
        }
        Self { state, routes: routes.prepare(), preface_timeout, message_timeout }
    }

    /// Serves one connection until it ends or, at shutdown, its calls are answered.
    pub(crate) async fn serve(
        self,
        mut stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        peer: SocketAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        // hyper waits for them without a timeout, also at shutdown.
        let first = tokio::select! {
            biased;
            first = tokio::time::timeout(self.preface_timeout, read_preface(&mut stream)) => first.ok().flatten(),
            _ = stop.wait_for(|stop| *stop) => None,
        };
        let Some(first) = first else { return };
        let stream = Rewind::new(first, stream);
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADERS)
            .initial_stream_window_size(RECEIVE_WINDOW)
            .initial_connection_window_size(RECEIVE_WINDOW)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let timeouts = CallTimeouts { message: self.message_timeout, stop: stop.clone() };
        let service = CallService::new(self.state, self.routes, peer.ip().to_canonical(), timeouts);
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            // Errors of a client are not logged.
            _ = connection.as_mut() => return,
            _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Reads the first bytes of a connection. Returns `None` if it ends before, or they are those of another protocol.
async fn read_preface(stream: &mut (impl AsyncRead + Unpin)) -> Option<Bytes> {
    let mut read = BytesMut::with_capacity(4 << 10);
    while read.len() < PREFACE.len() {
        let length = stream.read_buf(&mut read).await.ok()?;
        if length == 0 || !PREFACE.starts_with(&read[..read.len().min(PREFACE.len())]) {
            return None;
        }
    }
    Some(read.freeze())
}

/// Waits for a decision as long as the caller does.
async fn within<T>(deadline: Option<Duration>, decision: impl Future<Output = T>) -> Result<T, Status> {
    let Some(deadline) = deadline else { return Ok(decision.await) };
    let late = |_| Status::deadline_exceeded("the decision takes longer than the caller waits; nothing was charged");
    tokio::time::timeout(deadline, decision).await.map_err(late)
}

#[cfg(test)]
mod tests;
