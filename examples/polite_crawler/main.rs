//! A crawler that is a good guest: so many requests a second at each host, and none while a host asks to be left alone.
//!
//! ```text
//! cargo run --example polite_crawler
//! cargo run --example polite_crawler -- http://127.0.0.1:3000/
//! ```
//!
//! Without an address it crawls a small site of its own, on two ports. One says now and then that nothing is left
//! (`RateLimit`), the other refuses (429 with `Retry-After`). With an address it crawls that host, 50 pages at most. For `https`
//! reqwest needs one of its TLS features, which this example leaves out.
//!
//! - `client.rs`: the client with its limits. This is the part that you want to copy.
//! - `crawl.rs`: what is asked for, in which order, and how often.
//! - `fetch.rs`, `links.rs`, `robots.rs`: one page, where it leads, and where nobody should go.
//! - `summary.rs`: what is told in the end. `site.rs`: the site of its own.

mod client;
mod crawl;
mod fetch;
mod links;
mod robots;
pub(crate) mod site;
mod summary;

use diana::core::Quota;
use reqwest::Url;
use site::Site;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// How many pages of a site that is not its own are looked at.
const PAGES: usize = 50;
/// How many requests a second each host gets at most.
const EACH_HOST: &str = "20/s burst 1";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match std::env::args().nth(1) {
        Some(url) => named_site(&url).await,
        None => own_site().await,
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("polite_crawler: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        eprintln!("  since {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

async fn named_site(url: &str) -> Result<(), Box<dyn Error>> {
    let root =
        url.parse::<Url>().map_err(|error| format!("`{url}`: {error}; it takes one like http://127.0.0.1:3000/"))?;
    if root.scheme() != "http" {
        return Err(format!("`{url}`: only http:// here; for https, give reqwest one of its TLS features").into());
    }
    run(vec![root], &mut io::stdout()).await
}

async fn own_site() -> Result<(), Box<dyn Error>> {
    let site = Site::start().await?;
    run(site.roots()?, &mut io::stdout()).await?;
    println!("the hosts themselves counted {:?} requests, with those for robots.txt", site.asked());
    Ok(())
}

/// Crawls the hosts of these addresses, and tells of it.
pub(crate) async fn run(roots: Vec<Url>, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let client = client::polite(EACH_HOST.parse::<Quota>()?)?;
    let summary = crawl::crawl(&client, roots, PAGES, out).await?;
    write!(out, "{summary}")?;
    Ok(())
}
