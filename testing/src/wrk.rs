//! A load by `wrk`: so many connections, each with one request under way at any time, for so long.
//!
//! ```no_run
//! use diana_testing::Wrk;
//! use std::time::Duration;
//!
//! let run = Wrk::new("http://127.0.0.1:8080").connections(64).duration(Duration::from_secs(2)).run(&["/"])?;
//! println!("{} a second, {} of them refused, p99 {:?}", run.rate(), run.refused, run.p99);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is asked, and how.
#[derive(Clone, Debug)]
pub struct Wrk {
    url: String,
    connections: u32,
    duration: Duration,
    headers: Vec<String>,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct WrkRun {
    /// Answers, whatever they were.
    pub answers: u64,
    /// Answers with a status of 400 or more.
    pub refused: u64,
    /// Connections that failed, answers that broke off, and those that did not come in time.
    pub errors: u64,
    /// How long it took.
    pub took: Duration,
    /// Half of the answers came within this.
    pub p50: Duration,
    /// 99 of 100 answers came within this.
    pub p99: Duration,
}

impl WrkRun {
    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.answers as f64 / self.took.as_secs_f64()
    }
}

impl Wrk {
    /// A load of 64 connections for one second on the server at `url`, which has no path.
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), connections: 64, duration: Duration::from_secs(1), headers: Vec::new() }
    }

    /// With so many connections.
    #[must_use]
    pub fn connections(self, connections: u32) -> Self {
        Self { connections, ..self }
    }

    /// For so long; wrk counts whole seconds, so a part of one is one.
    #[must_use]
    pub fn duration(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// With this line in every request's head: `Connection: close`.
    #[must_use]
    pub fn header(mut self, line: &str) -> Self {
        self.headers.push(line.to_owned());
        self
    }

    /// Asks for `paths` in turn.
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
            let hint = "`cargo xtask test` installs what tests need";
            io::Error::new(error.kind(), format!("wrk can't be started: {error}; {hint}"))
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let run = text.lines().find_map(WrkRun::parse);
        run.ok_or_else(|| io::Error::other(format!("wrk: {text}{}", String::from_utf8_lossy(&output.stderr))))
    }

    /// Figures in one line; and the requests in turn, where there are several (a request from a script costs wrk more).
    fn script(&self, paths: &[&str]) -> String {
        let mut script = SUMMARY.to_owned();
        if paths.len() > 1 {
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
        let [answers, refused, errors, took, p50, p99] = numbers[..] else { return None };
        let [took, p50, p99] = [took, p50, p99].map(Duration::from_micros);
        Some(Self { answers, refused, errors, took, p50, p99 })
    }
}

/// What the line with the figures begins with.
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

#[cfg(test)]
mod tests {
    use super::WrkRun;
    use std::time::Duration;

    #[test]
    fn figures_are_read_from_their_line_and_no_other() {
        let run = WrkRun::parse("figures: 2000 1000 3 2000000 150 900").unwrap();
        assert_eq!((run.answers, run.refused, run.errors), (2_000, 1_000, 3));
        assert_eq!((run.p50, run.p99), (Duration::from_micros(150), Duration::from_micros(900)));
        assert!((run.rate() - 1_000.0).abs() < 1e-9);
        assert!(WrkRun::parse("figures: 2000 1000").is_none());
        assert!(WrkRun::parse("Requests/sec: 2000").is_none());
    }
}
