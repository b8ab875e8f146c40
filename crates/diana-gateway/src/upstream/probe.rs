//! One health check of an upstream: a `GET` over a new connection, with the protocol that requests use.
//!
//! The status decides. The body is read up to [`MAX_BODY`], so that the upstream does not log an aborted response; its head
//! is bounded as that of every response.

use super::connector::UpstreamIo;
use super::http1::{MAX_INTERIM, read_head};
use super::{Connector, UpstreamError, WireError};
use crate::section::HealthCheck;
use bytes::{Bytes, BytesMut};
use diana_metrics::UpstreamShard;
use diana_net::Protocol;
use diana_rules::upstream_url::{Scheme, Upstream};
use http::header::USER_AGENT;
use http::{Method, Request, StatusCode};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The `User-Agent` of a check, by which upstreams can tell it from requests.
const AGENT: &str = concat!("diana-health-check/", env!("CARGO_PKG_VERSION"));
/// The size up to which a response's body is read.
const MAX_BODY: usize = 64 << 10;
/// The maximum size of the head of an HTTP/2 response.
const MAX_HEAD: u32 = 64 << 10;
/// The number of bytes read at once.
const CHUNK: usize = 4 << 10;

/// The reason why a check failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("no response within {0:?}")]
    TimedOut(std::time::Duration),
}

impl From<WireError> for CheckError {
    fn from(error: WireError) -> Self {
        Self::Upstream(UpstreamError::Broken(error))
    }
}

impl From<io::Error> for CheckError {
    fn from(error: io::Error) -> Self {
        WireError::Io(error).into()
    }
}

impl From<h2::Error> for CheckError {
    fn from(error: h2::Error) -> Self {
        WireError::Http2(error).into()
    }
}

/// Checks an upstream once.
pub(super) async fn probe(connector: &Connector, upstream: &Upstream, check: &HealthCheck) -> Result<(), CheckError> {
    let probe = async {
        // A worker's counts are only about requests.
        let counts = Arc::<UpstreamShard>::default();
        let (io, protocol) = connector.connect(upstream, &counts).await?;
        let authority = check.host.clone().unwrap_or_else(|| upstream.authority());
        match protocol {
            Protocol::Http1 => over_http1(io, &authority, check).await,
            Protocol::Http2 => over_http2(io, upstream.scheme, &authority, check).await,
        }
    };
    tokio::time::timeout(check.timeout, probe).await.unwrap_or(Err(CheckError::TimedOut(check.timeout)))
}

fn accept(status: StatusCode, check: &HealthCheck) -> Result<(), CheckError> {
    if check.accepts(status) { Ok(()) } else { Err(CheckError::Status(status)) }
}

async fn over_http1(mut io: UpstreamIo, authority: &str, check: &HealthCheck) -> Result<(), CheckError> {
    let path = &check.path;
    let head = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nuser-agent: {AGENT}\r\nconnection: close\r\n\r\n");
    io.write_all(head.as_bytes()).await?;
    io.flush().await?;
    let mut input = BytesMut::with_capacity(CHUNK);
    let mut interim = 0;
    let mut head = loop {
        if !input.is_empty()
            && let Some(head) = read_head(&mut input, &Method::GET)?
        {
            if !head.response.status().is_informational() {
                break head;
            }
            interim += 1;
            if interim > MAX_INTERIM {
                return Err(WireError::InvalidHttp("too many interim responses").into());
            }
        } else if io.read_buf(&mut input).await? == 0 {
            return Err(WireError::Closed.into());
        }
    };
    let result = accept(head.response.status(), check);
    let mut read = input.len();
    // The status has decided: an incomplete body is not a failure.
    while read < MAX_BODY && !head.decoder.is_over() {
        match head.decoder.take(&mut input) {
            Ok(Some(_)) => continue,
            Ok(None) if head.decoder.is_over() => break,
            Ok(None) => {}
            Err(_) => break,
        }
        match io.read_buf(&mut input).await {
            Ok(length) if length > 0 => read += length,
            _ => break,
        }
    }
    result
}

async fn over_http2(io: UpstreamIo, scheme: Scheme, authority: &str, check: &HealthCheck) -> Result<(), CheckError> {
    let scheme = if scheme == Scheme::Https { "https" } else { "http" };
    let request = Request::get(format!("{scheme}://{authority}{}", check.path)).header(USER_AGENT, AGENT).body(());
    let request = request.map_err(|_| WireError::InvalidHttp("the path or host of the check"))?;
    let handshake =
        h2::client::Builder::new().max_header_list_size(MAX_HEAD).enable_push(false).handshake::<_, Bytes>(io);
    let (sender, connection) = handshake.await?;
    let exchange = async {
        let (response, _) = sender.ready().await?.send_request(request, true)?;
        response.await
    };
    tokio::select! {
        biased;
        response = exchange => accept(response?.status(), check),
        ended = connection => Err(ended.map_or_else(CheckError::from, |()| WireError::Closed.into())),
    }
}
