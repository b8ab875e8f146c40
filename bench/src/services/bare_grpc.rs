//! The peer for gRPC: a service that answers OK without looking.

use crate::messages::{DescriptorStatus, RateLimitRequest, RateLimitResponse};
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;

/// The option that makes this program the service, followed by the port.
pub(crate) const OPTION: &str = "--bare-grpc";

/// Returns the port, if this program is to be the service.
pub(crate) fn port_argument() -> Option<u16> {
    let mut arguments = std::env::args().skip(1);
    (arguments.next()? == OPTION).then(|| arguments.next().unwrap().parse().unwrap())
}

/// Serves until it is killed, with one thread.
pub(crate) fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    runtime.block_on(Server::builder().tcp_nodelay(true).add_service(Bare).serve(address)).unwrap();
}

#[derive(Clone)]
struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl UnaryService<RateLimitRequest> for Bare {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;

    fn call(&mut self, request: tonic::Request<RateLimitRequest>) -> Self::Future {
        let status = DescriptorStatus { code: 1, limit_remaining: 7 };
        let statuses = request.into_inner().descriptors.iter().map(|_| status.clone()).collect();
        ready(Ok(tonic::Response::new(RateLimitResponse { overall_code: 1, statuses })))
    }
}

impl tower_service::Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move { Ok(Grpc::new(tonic_prost::ProstCodec::default()).unary(Self, request).await) })
    }
}
