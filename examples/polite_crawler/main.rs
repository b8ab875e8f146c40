//! A polite crawler: a request rate per host, and no requests while a host asks for a pause.
//!
//! ```text
//! cargo run --example polite_crawler
//! cargo run --example polite_crawler -- http://127.0.0.1:3000/
//! ```
//!
//! Without a URL it crawls a small built-in site, on two ports. One reports now and then that its quota is used up
//! (`RateLimit`), the other denies (429 with `Retry-After`). With a URL it crawls that host, at most 50 pages. For
//! `https` reqwest needs one of its TLS features, which this example leaves out.
//!
//! - `client.rs`: the client with its limits. This is the part to copy.
//! - `crawl.rs`: which pages are requested, in which order, and how often.
//! - `fetch.rs`, `links.rs`, `robots.rs`: one page, its links, and the paths that are disallowed.
//! - `summary.rs`: the summary at the end. `site.rs`: the built-in site.

mod client;
mod crawl;
mod fetch;
mod links;
mod robots;
pub(crate) mod site;
mod summary;

use diana::Quota;
use reqwest::Url;
use site::Site;
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

/// The maximum number of pages of a site other than the built-in one.
const PAGES: usize = 50;
/// The maximum request rate per host.
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
        eprintln!("  caused by: {error}");
        cause = error.source();
    }
    ExitCode::FAILURE
}

async fn named_site(url: &str) -> Result<(), Box<dyn Error>> {
    let root = url
        .parse::<Url>()
        .map_err(|error| format!("invalid URL `{url}`: {error}; expected one such as http://127.0.0.1:3000/"))?;
    if root.scheme() != "http" {
        return Err(
            format!("unsupported URL `{url}`: expected http://; for https, enable a TLS feature of reqwest").into()
        );
    }
    run(vec![root], &mut io::stdout()).await
}

async fn own_site() -> Result<(), Box<dyn Error>> {
    let site = Site::start().await?;
    run(site.roots()?, &mut io::stdout()).await?;
    println!("requests counted by the hosts: {:?}, including robots.txt", site.requests());
    Ok(())
}

/// Crawls the hosts of these URLs, and reports the results.
pub(crate) async fn run(roots: Vec<Url>, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let client = client::polite(EACH_HOST.parse::<Quota>()?)?;
    let summary = crawl::crawl(&client, roots, PAGES, out).await?;
    write!(out, "{summary}")?;
    Ok(())
}
