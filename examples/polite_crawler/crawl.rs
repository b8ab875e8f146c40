//! The crawl: breadth first, each page once, with bounded concurrency, and a retry if it was denied.

use super::fetch::{Fetched, Outcome, fetch};
use super::robots::Robots;
use super::summary::Summary;
use diana_client::RequestHost;
use reqwest::{Method, Request, Url};
use reqwest_middleware::ClientWithMiddleware;
use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;
use std::io::{self, Write};
use tokio::task::JoinSet;

/// The maximum number of active or waiting calls per host: a paused host does not block the others.
const MAX_IN_FLIGHT: usize = 2;
/// The maximum number of attempts for a page that its host denies.
const ATTEMPTS: u32 = 3;

/// Crawls the hosts of `roots`, at most `max_pages` pages, and reports each call.
pub(crate) async fn crawl(
    client: &ClientWithMiddleware,
    roots: Vec<Url>,
    max_pages: usize,
    out: &mut impl Write,
) -> Result<Summary, Box<dyn Error>> {
    let mut hosts = HashMap::new();
    for root in &roots {
        hosts.insert(host(root), Host { robots: Robots::fetch(client, root).await?, in_flight: 0 });
    }
    let crawl = Crawl { hosts, max_pages, seen: HashSet::new(), queue: VecDeque::new(), summary: Summary::new() };
    crawl.run(client, roots, out).await
}

struct Crawl {
    /// The hosts that are crawled; no other is contacted.
    hosts: HashMap<String, Host>,
    max_pages: usize,
    /// All pages that were ever queued.
    seen: HashSet<Url>,
    queue: VecDeque<Call>,
    summary: Summary,
}

struct Host {
    robots: Robots,
    in_flight: usize,
}

struct Call {
    url: Url,
    attempt: u32,
}

impl Crawl {
    async fn run(
        mut self,
        client: &ClientWithMiddleware,
        roots: Vec<Url>,
        out: &mut impl Write,
    ) -> Result<Summary, Box<dyn Error>> {
        self.add(roots);
        let mut calls = JoinSet::new();
        loop {
            while let Some(call) = self.next() {
                let client = client.clone();
                calls.spawn(async move { (fetch(client, call.url).await, call.attempt) });
            }
            let Some(done) = calls.join_next().await else { return Ok(self.summary) };
            let (fetched, attempt) = done?;
            self.done(fetched, attempt, out)?;
        }
    }

    /// Returns the first queued page whose host is below its maximum.
    fn next(&mut self) -> Option<Call> {
        let has_capacity =
            |call: &Call| self.hosts.get(&host(&call.url)).is_some_and(|host| host.in_flight < MAX_IN_FLIGHT);
        let call = self.queue.iter().position(has_capacity).and_then(|index| self.queue.remove(index))?;
        self.hosts.get_mut(&host(&call.url))?.in_flight += 1;
        Some(call)
    }

    fn done(&mut self, fetched: Fetched, attempt: u32, out: &mut impl Write) -> io::Result<()> {
        let name = host(&fetched.url);
        if let Some(host) = self.hosts.get_mut(&name) {
            host.in_flight -= 1;
        }
        self.summary.add(&name, &fetched);
        writeln!(out, "{}", self.summary.line(&fetched))?;
        match fetched.outcome {
            Outcome::Answered(_, links) => self.add(links),
            // The client delays it until the host accepts requests again.
            Outcome::Denied(_) if attempt < ATTEMPTS => {
                self.queue.push_front(Call { url: fetched.url, attempt: attempt + 1 });
            }
            Outcome::Denied(_) | Outcome::Overloaded(_) | Outcome::Failed(_) => self.summary.failed += 1,
        }
        Ok(())
    }

    /// Queues pages: those that are new, on these hosts, and allowed for crawlers, up to the maximum.
    fn add(&mut self, urls: Vec<Url>) {
        for url in urls {
            let is_allowed = self.hosts.get(&host(&url)).is_some_and(|host| host.robots.allows(&url));
            if is_allowed && self.seen.len() < self.max_pages && self.seen.insert(url.clone()) {
                self.queue.push_back(Call { url, attempt: 1 });
            }
        }
    }
}

/// Returns the host name that keys the limits.
fn host(url: &Url) -> String {
    Request::new(Method::GET, url.clone()).host().unwrap_or_default()
}
