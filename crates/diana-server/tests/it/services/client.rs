//! A client of the service `envoy`.

use super::messages::{
    CheckRequest, CheckResponse, Code, Descriptor, Entry, HealthRequest, HealthResponse, Override, RateLimitRequest,
    RateLimitResponse, ReflectionRequest, ReflectionResponse, Unit,
};
use crate::support::http2::tls;
use crate::support::program::LONG;
use futures_util::StreamExt;
use http::Uri;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::util::BoxCloneSyncService;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const HEALTH: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// A connection. Cloning is cheap; clones share it.
///
/// Not tonic's `Channel`: that one has its own timer for deadlines, and the tests are about the service's.
#[derive(Clone)]
pub(super) struct Envoy(Grpc<Connection>);

type Connection = BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, hyper::Error>;

impl Envoy {
    pub(super) async fn connect(port: u16) -> Self {
        Self::over(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap()).await
    }

    /// Connects with TLS, and trusts only this certificate for `localhost`.
    pub(super) async fn connect_tls(port: u16, trusted: &Path) -> Self {
        Self::over(tls(port, &[trusted], "localhost", &["h2"]).await.unwrap()).await
    }

    /// Speaks HTTP/2 over a stream.
    pub(super) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        let builder = http2::Builder::new(TokioExecutor::new());
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let call = tower::service_fn(move |request| sender.clone().send_request(request));
        Self(Grpc::with_origin(BoxCloneSyncService::new(call), Uri::from_static("http://localhost")))
    }

    /// Calls a method; the deadline is only told, and this client waits longer.
    pub(super) async fn call<M, R>(
        &self,
        path: &'static str,
        message: M,
        deadline: Option<Duration>,
    ) -> Result<R, Status>
    where
        M: Message + Send + Sync + 'static,
        R: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.0.clone();
        let mut request = Request::new(message);
        if let Some(deadline) = deadline {
            let text = format!("{}m", deadline.as_millis()).parse().unwrap();
            request.metadata_mut().insert("grpc-timeout", text);
        }
        let call = async {
            grpc.ready().await.map_err(|error| Status::internal(error.to_string()))?;
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<M, R>::default()).await
        };
        let response = tokio::time::timeout(LONG, call).await.expect("no response");
        response.map(tonic::Response::into_inner)
    }

    /// Asks the rate limit service.
    pub(super) async fn should_rate_limit(&self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.call(SHOULD_RATE_LIMIT, request, None).await
    }

    /// The same, with a deadline.
    pub(super) async fn with_deadline(
        &self,
        request: RateLimitRequest,
        deadline: Duration,
    ) -> Result<RateLimitResponse, Status> {
        self.call(SHOULD_RATE_LIMIT, request, Some(deadline)).await
    }

    /// Asks about one descriptor of the domain `shop`; fails on an error.
    pub(super) async fn ask(&self, descriptor: Descriptor) -> RateLimitResponse {
        self.ask_all([descriptor]).await
    }

    /// Asks about several descriptors of the domain `shop`; fails on an error.
    pub(super) async fn ask_all(&self, descriptors: impl IntoIterator<Item = Descriptor>) -> RateLimitResponse {
        self.should_rate_limit(shop(descriptors)).await.unwrap()
    }

    /// Asks about one descriptor; `None` if the service has no memory for it.
    pub(super) async fn try_codes(&self, descriptor: Descriptor) -> Option<Code> {
        match self.should_rate_limit(shop([descriptor])).await {
            Ok(response) => Some(response.overall_code()),
            Err(status) if status.code() == tonic::Code::ResourceExhausted => None,
            Err(status) => panic!("{status}"),
        }
    }

    /// Asks about the same descriptor several times, and returns the codes.
    pub(super) async fn codes<const N: usize>(&self, descriptor: &Descriptor) -> [Code; N] {
        let mut codes = [Code::Unknown; N];
        for code in &mut codes {
            *code = self.ask(descriptor.clone()).await.overall_code();
        }
        codes
    }

    /// Asks the external authorization.
    pub(super) async fn check(&self, request: CheckRequest) -> Result<CheckResponse, Status> {
        self.call(CHECK, request, None).await
    }

    /// The same, with a deadline.
    pub(super) async fn check_within(
        &self,
        request: CheckRequest,
        deadline: Duration,
    ) -> Result<CheckResponse, Status> {
        self.call(CHECK, request, Some(deadline)).await
    }

    /// Asks the reflection.
    pub(super) async fn reflect(&self, request: ReflectionRequest) -> ReflectionResponse {
        let mut grpc = self.0.clone();
        grpc.ready().await.unwrap();
        let requests = Request::new(futures_util::stream::iter([request]));
        let codec = ProstCodec::<ReflectionRequest, ReflectionResponse>::default();
        let responses = grpc.streaming(requests, PathAndQuery::from_static(REFLECTION), codec).await.unwrap();
        responses.into_inner().message().await.unwrap().unwrap()
    }

    /// Opens a stream to the reflection that the client does not end, and reads the first response.
    pub(super) async fn open_reflection(&self, request: ReflectionRequest) -> Streaming<ReflectionResponse> {
        let mut grpc = self.0.clone();
        grpc.ready().await.unwrap();
        let requests = futures_util::stream::iter([request]).chain(futures_util::stream::pending());
        let codec = ProstCodec::<ReflectionRequest, ReflectionResponse>::default();
        let path = PathAndQuery::from_static(REFLECTION);
        let mut responses = grpc.streaming(Request::new(requests), path, codec).await.unwrap().into_inner();
        responses.message().await.unwrap().unwrap();
        responses
    }

    /// Watches the health of a service.
    pub(super) async fn watch_health(&self, service: &str) -> Streaming<HealthResponse> {
        let mut grpc = self.0.clone();
        grpc.ready().await.unwrap();
        let request = Request::new(HealthRequest { service: service.to_owned() });
        let codec = ProstCodec::<HealthRequest, HealthResponse>::default();
        grpc.server_streaming(request, PathAndQuery::from_static(WATCH), codec).await.unwrap().into_inner()
    }

    /// Asks for the health of a service; of the whole server, if its name is empty.
    pub(super) async fn health(&self, service: &str) -> Result<i32, Status> {
        let response =
            self.call::<_, HealthResponse>(HEALTH, HealthRequest { service: service.to_owned() }, None).await;
        response.map(|response| response.status)
    }
}

/// A request of the domain `shop`.
pub(super) fn shop(descriptors: impl IntoIterator<Item = Descriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".to_owned(), descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
}

/// A descriptor with these entries.
pub(super) fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entries = entries.iter().map(|(key, value)| Entry { key: (*key).to_owned(), value: (*value).to_owned() });
    Descriptor { entries: entries.collect(), ..Descriptor::default() }
}

impl Descriptor {
    pub(super) fn hits(self, hits: u64) -> Self {
        Self { hits_addend: Some(hits), ..self }
    }

    pub(super) fn refund(self, hits: u64) -> Self {
        Self { hits_addend: Some(hits), is_negative_hits: true, ..self }
    }

    pub(super) fn limit(self, requests_per_unit: u32, unit: Unit) -> Self {
        Self { limit: Some(Override { requests_per_unit, unit: unit.into() }), ..self }
    }
}

impl RateLimitResponse {
    /// The code of each descriptor.
    pub(super) fn codes(&self) -> Vec<Code> {
        self.statuses.iter().map(super::messages::DescriptorStatus::code).collect()
    }

    /// What remains for each descriptor.
    pub(super) fn remaining(&self) -> Vec<u32> {
        self.statuses.iter().map(|status| status.limit_remaining).collect()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.response_headers_to_add.iter();
        headers.find(|header| header.key == name).map(|header| &*header.value)
    }
}
