//! A complete axum server: rules for all requests, and a limit on one handler.
//!
//! ```text
//! cargo run -p diana-http --example axum_program --features axum,macros
//! for i in 1 2; do curl -i http://127.0.0.1:3000/search/7; done
//! ```

// docs: begin
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use diana::limited::Limits;
use diana::rate_limit;
use diana::rules::{Document, Registry, RuleFile};
use diana_http::{LimitedResponse, RateLimitLayer};
use std::error::Error;
use std::net::SocketAddr;
use tokio::net::TcpListener;

const RULES: &str = "
rules:
  - {name: each-client, by: ip, limit: 5/s, status: 429}
  - {name: login, match: {path: /login, method: POST}, by: ip, limit: 5/min, status: 429}
";

/// One a second for each user, whatever the address.
#[rate_limit(rate = 1.0, by = "{user}")]
async fn search(Path(user): Path<u64>) -> Result<String, LimitedResponse> {
    Ok(format!("nothing found for user {user}\n"))
}

pub(crate) fn app() -> Result<Router, Box<dyn Error + Send + Sync>> {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default())?;
    let routes = Router::new().route("/search/{user}", get(search)).route("/login", post(async || "welcome\n"));
    Ok(routes.layer(RateLimitLayer::new(&file)?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    Limits::new().install(); // the counts of `#[rate_limit]`
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, app()?.into_make_service_with_connect_info::<SocketAddr>()).await?;
    Ok(())
}
// docs: end
