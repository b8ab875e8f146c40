//! A plain hyper server with Diana as a layer.
//!
//! ```text
//! cargo run -p diana-http --example hyper_server
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/; done
//! ```

use bytes::Bytes;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::{ClientAddress, RateLimitLayer, ThrottledBody};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::error::Error;
use tokio::net::TcpListener;
use tower::{ServiceBuilder, service_fn};

pub(crate) const RULES: &str = "rules: [{name: each-client, by: ip, limit: 3/h, status: 429}]";

// docs: begin
async fn hello(_request: Request<ThrottledBody<Incoming>>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"hello\n"))))
}

pub(crate) async fn serve(listener: TcpListener, file: RuleFile) -> Result<(), Box<dyn Error + Send + Sync>> {
    // One layer for all connections: they share its counts.
    let diana = RateLimitLayer::new(&file)?;
    loop {
        let (stream, peer) = listener.accept().await?;
        let service = ServiceBuilder::new()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(ClientAddress(peer.ip()));
                request
            })
            .layer(diana.clone())
            .service(service_fn(hello));
        tokio::spawn(async move {
            let connection = Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service);
            if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
// docs: end

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default())?;
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/", listener.local_addr()?);
    serve(listener, file).await
}
