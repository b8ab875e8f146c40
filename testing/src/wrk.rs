//! A load by `wrk`: a number of connections, each with one request in flight at any time, for a duration.
//!
//! ```no_run
//! use diana_testing::Wrk;
//! use std::time::Duration;
//!
//! let run = Wrk::new("http://127.0.0.1:8080").connections(64).duration(Duration::from_secs(2)).run(&["/"])?;
//! println!("{} per second, {} of them denied, p99 {:?}", run.rate(), run.denied, run.p99);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The settings of a load.
#[derive(Clone, Debug)]
pub struct Wrk {
    url: String,
    connections: u32,
    duration: Duration,
    headers: Vec<String>,
    clients: Clients,
}

/// Whether requests are sent in the name of one client or of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clients {
    One,
    /// Each request has another address in `X-Forwarded-For`.
    Distinct,
}

/// The result of a load.
#[derive(Clone, Copy, Debug)]
pub struct WrkRun {
    /// All responses.
    pub answers: u64,
    /// Responses with a status of 400 or more.
    pub denied: u64,
    /// Failed connections, incomplete responses, and timeouts.
    pub errors: u64,
    /// The duration of the run.
    pub took: Duration,
    /// The median latency.
    pub p50: Duration,
    /// The 99th percentile of the latency.
    pub p99: Duration,
}

impl WrkRun {
    /// Returns the responses per second.
    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.took.as_secs_f64()
    }
}

impl Wrk {
    /// Creates a load of 64 connections for one second on the server at `url`, which has no path.
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            connections: 64,
            duration: Duration::from_secs(1),
            headers: Vec::new(),
            clients: Clients::One,
        }
    }

    /// Sets the number of connections.
    #[must_use]
    pub fn connections(self, connections: u32) -> Self {
        Self { connections, ..self }
    }

    /// Sets the duration; wrk counts whole seconds, so it is rounded up.
    #[must_use]
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// Adds this header line to every request: `Connection: close`.
    #[must_use]
    pub fn header(mut self, line: &str) -> Self {
        self.headers.push(line.to_owned());
        self
    }

    /// Sends each request in the name of another client, by `X-Forwarded-For`: 10.0.0.1 and so on. Only the first path
    /// is requested, without further headers.
    #[must_use]
    pub fn distinct_clients(self) -> Self {
        Self { clients: Clients::Distinct, ..self }
    }

    /// Runs the load; requests `paths` in turn.
    pub fn run(&self, paths: &[&str]) -> io::Result<WrkRun> {
        let mut script = tempfile::Builder::new().prefix("diana-wrk-").suffix(".lua").tempfile()?;
        script.write_all(self.script(paths).as_bytes())?;
        let seconds = self.duration.as_secs() + u64::from(self.duration.subsec_nanos() > 0);
        let mut command = Command::new("wrk");
        command.args(["--threads", "1", "--connections", &self.connections.to_string()]);
        command.args(["--duration", &format!("{seconds}s"), "--timeout", "10s", "--script"]).arg(script.path());
        for header in &self.headers {
            command.args(["--header", header]);
        }
        command.arg(format!("{}{}", self.url, paths.first().unwrap_or(&"/")));
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            let hint = "`cargo xtask install` installs the programs that tests need";
            io::Error::new(error.kind(), format!("cannot start `wrk`: {error}; {hint}"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let run = text.lines().find_map(WrkRun::parse);
        run.ok_or_else(|| io::Error::other(format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr))))
    }

    /// Returns a script that prints the figures in one line, and makes the requests in turn if there are several paths
    /// (a scripted request costs wrk more).
    fn script(&self, paths: &[&str]) -> String {
        let mut script = SUMMARY.to_owned();
        if self.clients == Clients::Distinct {
            script.push_str(DISTINCT);
        } else if paths.len() > 1 {
            let list: Vec<String> = paths.iter().map(|path| format!("{path:?}")).collect();
            script.push_str(&TURNS.replace("PATHS", &list.join(", ")));
        }
        script
    }
}

impl WrkRun {
    fn parse(line: &str) -> Option<Self> {
        let numbers = line.strip_prefix(MARK)?.split_whitespace().map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>().ok()?;
        let [answers, denied, errors, took, p50, p99] = numbers[..] else { return None };
        let [took, p50, p99] = [took, p50, p99].map(Duration::from_micros);
        Some(Self { answers, denied, errors, took, p50, p99 })
    }
}

/// The prefix of the line with the figures.
const MARK: &str = "figures: ";

const SUMMARY: &str = r#"
done = function(summary, latency)
    local e = summary.errors
    print(string.format("figures: %d %d %d %d %d %d", summary.requests, e.status, e.connect + e.read + e.write + e.timeout,
        summary.duration, latency:percentile(50), latency:percentile(99)))
end
"#;

const TURNS: &str = r"
local requests, turn = {}, 0
init = function(args)
    for i, path in ipairs({PATHS}) do requests[i] = wrk.format(nil, path) end
end
request = function()
    turn = turn % #requests + 1
    return requests[turn]
end
";

const DISTINCT: &str = r#"
local count = 0
request = function()
    count = count + 1
    local address = string.format("10.%d.%d.%d", math.floor(count / 65536) % 256,
        math.floor(count / 256) % 256, count % 256)
    return wrk.format(nil, nil, {["X-Forwarded-For"] = address})
end
"#;

#[cfg(test)]
mod tests {
    use super::WrkRun;
    use std::time::Duration;

    #[test]
    fn parses_figures_from_their_line_only() {
        let run = WrkRun::parse("figures: 2000 1000 3 2000000 150 900").unwrap();
        assert_eq!((run.answers, run.denied, run.errors), (2_000, 1_000, 3));
        assert_eq!((run.p50, run.p99), (Duration::from_micros(150), Duration::from_micros(900)));
        assert!((run.rate() - 1_000.0).abs() < 1e-9);
        assert!(WrkRun::parse("figures: 2000 1000").is_none());
        assert!(WrkRun::parse("Requests/sec: 2000").is_none());
    }
}
