//! A gRPC server on tonic with Diana as a layer: here with the standard health service.
//!
//! ```text
//! cargo run -p diana-http --example tonic_server
//! grpcurl -plaintext 127.0.0.1:3000 grpc.health.v1.Health/Check
//! ```

use diana::rules::{Document, Registry, RuleFile};
use diana_http::RateLimitLayer;
use std::error::Error;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};

pub(crate) const RULES: &str = "
rules:
  - name: health
    by: ip
    match: {path: /grpc.health.v1.Health/*}
    limit: 2/h
";

// docs: begin
pub(crate) async fn serve(listener: TcpListener, file: RuleFile) -> Result<(), Box<dyn Error + Send + Sync>> {
    let diana = RateLimitLayer::new(&file)?
        .client_address(|head| Some(head.extensions.get::<TcpConnectInfo>()?.remote_addr()?.ip()));
    let (_reporter, health) = tonic_health::server::health_reporter();
    Server::builder().layer(diana).add_service(health).serve_with_incoming(TcpIncoming::from(listener)).await?;
    Ok(())
}
// docs: end

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default())?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/", listener.local_addr()?);
    serve(listener, file).await
}
