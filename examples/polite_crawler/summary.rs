//! The output: a line for each call, and a summary at the end.

use super::fetch::{Fetched, Outcome};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) struct Summary {
    start: Instant,
    pages: u64,
    denials: u64,
    pub(crate) failed: u64,
    longest_wait: Duration,
    hosts: BTreeMap<String, Sent>,
}

/// The calls to a host: how many, and when the first and the last.
struct Sent {
    calls: u32,
    first: Instant,
    last: Instant,
}

impl Summary {
    pub(crate) fn new() -> Self {
        let (start, hosts) = (Instant::now(), BTreeMap::new());
        Self { start, pages: 0, denials: 0, failed: 0, longest_wait: Duration::ZERO, hosts }
    }

    pub(crate) fn add(&mut self, host: &str, fetched: &Fetched) {
        match &fetched.outcome {
            Outcome::Answered(status, _) if status.is_success() => self.pages += 1,
            Outcome::Denied(_) => self.denials += 1,
            _ => {}
        }
        let Some((at, waited)) = fetched.sent else { return };
        self.longest_wait = self.longest_wait.max(waited);
        let sent = self.hosts.entry(host.to_owned()).or_insert(Sent { calls: 0, first: at, last: at });
        sent.calls += 1;
        (sent.first, sent.last) = (sent.first.min(at), sent.last.max(at));
    }

    /// ` 0.35 s  429  http://127.0.0.1:4001/page/7  (waited 0.05 s)`
    pub(crate) fn line(&self, fetched: &Fetched) -> String {
        let result = match &fetched.outcome {
            Outcome::Answered(status, _) | Outcome::Denied(status) => status.as_str().to_owned(),
            Outcome::Overloaded(error) => format!("not sent: {error}"),
            Outcome::Failed(error) => format!("failed: {error}"),
        };
        let line = |at: Instant| format!("{:5.2} s  {result}  {}", (at - self.start).as_secs_f64(), fetched.url);
        match fetched.sent {
            Some((at, waited)) => format!("{}  (waited {:.2} s)", line(at), waited.as_secs_f64()),
            None => line(Instant::now()),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pages, denials, failed, .. } = self;
        let (took, wait) = (self.start.elapsed().as_secs_f64(), self.longest_wait.as_secs_f64());
        writeln!(f, "{pages} pages in {took:.1} s: {denials} denied, {failed} failed, longest wait {wait:.2} s")?;
        for (host, Sent { calls, first, last }) in &self.hosts {
            let span = (*last - *first).as_secs_f64();
            match calls {
                1 => writeln!(f, "  {host}: 1 request")?,
                _ => writeln!(f, "  {host}: {calls} requests, {:.1} per second", f64::from(calls - 1) / span)?,
            }
        }
        Ok(())
    }
}
