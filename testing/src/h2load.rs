//! A load by `h2load`: HTTP/2 without TLS, a number of connections with a number of requests in flight on each, for a
//! duration.
//!
//! ```no_run
//! use diana_testing::H2load;
//! use std::time::Duration;
//!
//! let run = H2load::new("http://127.0.0.1:8080").connections(8).streams(8).duration(Duration::from_secs(2)).run(&["/"])?;
//! println!("{} responses, {} of them denied", run.answers, run.denied);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The settings of a load.
#[derive(Clone, Debug)]
pub struct H2load {
    url: String,
    connections: u32,
    streams: u32,
    duration: Duration,
}

/// The result of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H2loadRun {
    /// All responses.
    pub answers: u64,
    /// Responses with a status of 400 or more.
    pub denied: u64,
    /// Requests without a response, and timeouts.
    pub errors: u64,
}

impl H2load {
    /// Creates a load of 8 connections with 8 requests in flight each, for one second, on the server at `url`, which
    /// has no path.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), connections: 8, streams: 8, duration: Duration::from_secs(1) }
    }

    /// Sets the number of connections.
    #[must_use]
    pub fn connections(self, connections: u32) -> Self {
        Self { connections, ..self }
    }

    /// Sets the number of requests in flight on each connection.
    #[must_use]
    pub fn streams(self, streams: u32) -> Self {
        Self { streams, ..self }
    }

    /// Sets the duration, in whole milliseconds.
    #[must_use]
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// Runs the load; each connection requests `paths` in turn.
    pub fn run(&self, paths: &[&str]) -> io::Result<H2loadRun> {
        let mut command = Command::new("h2load");
        command.args(["--threads", "1", "--clients", &self.connections.to_string()]);
        command.args(["--max-concurrent-streams", &self.streams.to_string()]);
        command.args(["--duration", &format!("{}ms", self.duration.as_millis())]);
        command.args(paths.iter().map(|path| format!("{}{path}", self.url)));
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            let hint = "`cargo xtask install` installs the programs that tests need";
            io::Error::new(error.kind(), format!("cannot start `h2load`: {error}; {hint}"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        H2loadRun::parse(&text)
            .ok_or_else(|| io::Error::other(format!("h2load: {text}{}", String::from_utf8_lossy(&output.stderr))))
    }
}

impl H2loadRun {
    fn parse(text: &str) -> Option<Self> {
        let line = |prefix| text.lines().find_map(|line| line.strip_prefix(prefix));
        // `17993 2xx, 0 3xx, 18033 4xx, 0 5xx`: a number before each name.
        let number = |list: &str, name: &str| {
            list.split(", ").find_map(|item| item.trim().strip_suffix(name)?.trim().parse::<u64>().ok())
        };
        let (statuses, requests) = (line("status codes:")?, line("requests:")?);
        let denied = number(statuses, "4xx")? + number(statuses, "5xx")?;
        let answers = number(statuses, "2xx")? + number(statuses, "3xx")? + denied;
        let errors = number(requests, "errored")? + number(requests, "timeout")?;
        Some(Self { answers, denied, errors })
    }
}

#[cfg(test)]
mod tests {
    use super::H2loadRun;

    #[test]
    fn parses_the_counts_of_responses() {
        let text = "finished in 1.02s, 36026.00 req/s, 4.91MB/s\n\
            requests: 36026 total, 36090 started, 36026 done, 17993 succeeded, 18033 failed, 3 errored, 1 timeout\n\
            status codes: 17993 2xx, 0 3xx, 18033 4xx, 2 5xx\n";
        let run = H2loadRun { answers: 36_028, denied: 18_035, errors: 4 };
        assert_eq!(H2loadRun::parse(text), Some(run));
        assert_eq!(H2loadRun::parse("no such host"), None);
    }
}
