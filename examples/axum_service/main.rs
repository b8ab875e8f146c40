//! A web shop with everything that Diana offers a service:
//!
//! | where | what |
//! |---|---|
//! | `app.rs` | rules of a file in front of all handlers, watched while the program runs |
//! | `shop.rs` | limits on functions: by account, by address, by argument, by a rule of the file |
//! | `database.rs` | a connection pool with a wait queue |
//! | `feed.rs` | a stream at an even rate, and a download with a bandwidth limit |
//! | `partner.rs` | calls to another service, within its limit |
//!
//! ```text
//! cargo run --example axum_service                     # counts in this process
//! REDIS_URL=redis://127.0.0.1 cargo run --example axum_service -- 127.0.0.1:3001   # counts that all instances share
//! ```

mod app;
mod database;
mod feed;
mod partner;
mod shop;

use std::error::Error;
use std::path::Path;
use tokio::net::TcpListener;

/// Commands to try, and what they show.
const TRY: [(&str, &str); 9] = [
    ("each client has a limit, and gets its status in the response headers", "curl -i URL/"),
    (
        "2/s for each account, after a burst of 5; further calls wait for up to a second",
        "for i in 1 2 3 4 5 6 7; do curl -H 'x-account: ann' 'URL/search?words=crab'; done",
    ),
    (
        "one code per minute for each phone, by the rule `codes`",
        "for i in 1 2; do curl -i -X POST URL/codes/555-1234; done",
    ),
    (
        "3 per minute for each account, over all instances with Redis",
        "for i in 1 2 3 4; do curl -i -H 'x-account: ann' URL/export; done",
    ),
    ("two uploads at a time, the third one is queued", "for i in 1 2 3; do curl -d file URL/upload & done; wait"),
    ("a database with 2 connections", "for i in 1 2 3; do curl URL/orders & done; wait"),
    ("five lines per second", "curl -N URL/feed"),
    ("200 KiB at 50 KiB/s", "curl -o /dev/null URL/film"),
    ("a partner that allows 2 calls per second", "for i in 1 2 3 4; do curl URL/rates; done"),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(&address).await.map_err(|error| format!("can't listen on {address}: {error}"))?;
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("axum_service/rules.yaml");
    let app = app::start(&rules, std::env::var("REDIS_URL").ok().as_deref()).await?;
    let url = format!("http://{}", listener.local_addr()?);
    println!("listening on {url}, with the rules in {}; try:", rules.display());
    for (title, command) in TRY {
        println!("\n  # {title}\n  {}", command.replace("URL", &url));
    }
    Ok(app.serve(listener).await?)
}
