//! An axum server with Diana as a layer.
//!
//! ```text
//! cargo run -p diana-http --example axum_server --features axum
//! for i in 1 2 3 4; do curl -i http://127.0.0.1:3000/; done
//! ```

use axum::Router;
use axum::routing::get;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::RateLimitLayer;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

// docs: begin
pub(crate) const RULES: &str = "
rules:
  - {name: each-client, by: ip, limit: 3/h, status: 429}
  - {name: uploads, match: {path: /upload}, concurrent: 2}
";

pub(crate) fn app() -> Result<Router, Box<dyn Error + Send + Sync>> {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default())?;
    let routes = Router::new().route("/", get(async || "hello\n")).route("/upload", get(async || "thank you\n"));
    // A layer applies to the routes that were added before it.
    Ok(routes.layer(RateLimitLayer::new(&file)?))
}

pub(crate) async fn serve(listener: TcpListener, app: Router) -> io::Result<()> {
    // The connect info has the address of the client.
    axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
}
// docs: end

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("http://{}/", listener.local_addr()?);
    Ok(serve(listener, app()?).await?)
}
