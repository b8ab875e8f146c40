//! Instructions of a request in `diana serve`, by callgrind: user space only, all threads, with the rules that the
//! times are measured with.
//!
//! The program runs under valgrind. It is warmed up, its counters are set to zero from outside (`vgdb`, a part of
//! valgrind), and read again after a known number of requests. The difference of two whole runs would be simpler, but
//! the start alone takes 25 to 31 million instructions, at random: as many as a thousand requests.
//!
//! The requests come one after the other on one keep-alive connection. With several connections the number of requests
//! for each `epoll_wait` depends on the machine's load: with 64 of them, two runs differ by 3 %.

use crate::options::Options;
use diana_bench::gateways::{Diana, Gateway, Protocol, Stage};
use diana_bench::report::{Goal, Report};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const WARM_UP: u32 = 500;
const REQUESTS: u32 = 2_000;

/// Name, path, expected outcome, and the maximum number of instructions.
const SUBJECTS: [(&str, &str, Outcome, f64); 2] =
    [("  forwarded", "/open", Outcome::Forwarded, 24_000.0), ("  denied", "/shut", Outcome::Denied, 10_500.0)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Forwarded,
    Denied,
}

pub(crate) fn run(report: &mut Report, stage: &Stage, options: &Options) {
    if !options.wants("instructions") {
        return;
    }
    report.section("instructions a request (callgrind), one connection");
    let folder = tempfile::Builder::new().prefix("diana-callgrind-").tempdir().unwrap();
    let file = folder.path().join("counts");
    let out = format!("--callgrind-out-file={}", file.display());
    let valgrind = ["valgrind", "--quiet", "--tool=callgrind", &out];
    let gateway = stage.diana(Diana { name: "Diana under valgrind", wrapper: &valgrind, ..Diana::DEFAULT });
    for (dump, (what, path, expected, max)) in (1..).zip(SUBJECTS) {
        // Callgrind numbers its files.
        let counted = count(&gateway, path, expected, &file.with_extension(dump.to_string()));
        match counted {
            Ok(own) => {
                report.compare(what, format!("{own:.0}"), format!("goal {max}"), own / max, Goal::AtMost(1.0));
            }
            Err(problem) => report.figure(what, "not counted".to_owned(), problem.to_string()),
        }
    }
}

/// Returns the instructions per request for `path`; `dump` is the next file that callgrind writes.
fn count(gateway: &Gateway, path: &str, expected: Outcome, dump: &Path) -> io::Result<f64> {
    let mut connection = Connection::open(gateway.port(Protocol::Http1))?;
    connection.call_all(path, WARM_UP, expected)?;
    control(gateway, "zero")?;
    connection.call_all(path, REQUESTS, expected)?;
    control(gateway, "dump")?;
    let text = std::fs::read_to_string(dump)?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals:")?.trim().parse::<f64>().ok());
    let total = total.ok_or_else(|| io::Error::other("callgrind wrote no `totals`"))?;
    Ok(total / f64::from(REQUESTS))
}

/// Sends a command to callgrind in the gateway's process, and waits until it was executed.
fn control(gateway: &Gateway, command: &str) -> io::Result<()> {
    let output = Command::new("vgdb").arg(format!("--pid={}", gateway.pid)).arg(command).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("vgdb {command}: {}", String::from_utf8_lossy(&output.stderr))))
}

/// A keep-alive connection.
struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    /// Sends `count` requests one after the other. Fails if the outcome is not as expected.
    fn call_all(&mut self, path: &str, count: u32, expected: Outcome) -> io::Result<()> {
        let mut others = 0;
        for _ in 0..count {
            others += u32::from(self.call(path)? != expected);
        }
        // The limit of the denied path allows one request a minute.
        let max = if expected == Outcome::Denied { 2 } else { 0 };
        if others > max {
            return Err(io::Error::other(format!("{others} of {count} requests for {path} had another outcome")));
        }
        Ok(())
    }

    /// Sends a request, and reads the whole response.
    fn call(&mut self, path: &str) -> io::Result<Outcome> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        self.reader.get_mut().write_all(request.as_bytes())?;
        let (mut head, mut length) = (String::new(), 0);
        // The last line of the head is empty.
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            if self.reader.read_line(&mut head)? == 0 {
                return Err(io::Error::other(format!("connection closed within a response: {head:?}")));
            }
            if let Some(value) = head[start..].strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
        }
        self.reader.read_exact(&mut vec![0; length])?;
        // An error of the gateway is neither.
        match (head.starts_with("HTTP/1.1 200 "), head.contains("\r\nretry-after:")) {
            (true, _) => Ok(Outcome::Forwarded),
            (false, true) => Ok(Outcome::Denied),
            (false, false) => Err(io::Error::other(format!("unexpected response: {head:?}"))),
        }
    }
}
