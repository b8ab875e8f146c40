//! A load at a fixed rate, whatever the answers do: requests are due at their times, and an answer's latency counts from
//! when its request was due. wrk has no such thing: it asks less when answers are slow, and so does not see what clients
//! who come at their own times would.

use diana_bench::now;
use rustix::thread::set_current_timer_slack;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZeroU64;
use std::time::Duration;

/// Connections; each is a thread with one request under way at most.
const CONNECTIONS: u32 = 32;

/// Asks for `/open` at `port` so many times a second, for so long: all latencies, sorted.
pub(crate) fn run(port: u16, rate: f64, duration: Duration) -> Vec<Duration> {
    let interval = Duration::from_secs_f64(f64::from(CONNECTIONS) / rate);
    let began = now() + Duration::from_millis(20);
    let one = |number: u32| {
        // A thread that sleeps wakes 50 µs late otherwise.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut connection = Connection::open(port).unwrap();
        let mut latencies = Vec::new();
        let mut due = began + interval * number / CONNECTIONS;
        while due < began + duration {
            sleep(due.saturating_duration_since(now()));
            connection.ask().unwrap();
            latencies.push(now().saturating_duration_since(due));
            due += interval;
        }
        latencies
    };
    let mut all: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|number| scope.spawn(move || one(number))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    all
}

#[allow(clippy::disallowed_methods, reason = "the load of a bench comes in real time")]
fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// A connection that is kept.
pub(crate) struct Connection {
    stream: TcpStream,
}

impl Connection {
    pub(crate) fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self { stream })
    }

    /// Asks for `/open`, and waits for the whole answer.
    pub(crate) fn ask(&mut self) -> io::Result<()> {
        self.stream.write_all(b"GET /open HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
        let (mut buffer, mut filled) = ([0; 4_096], 0);
        loop {
            filled += match self.stream.read(&mut buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => read,
            };
            let text = String::from_utf8_lossy(&buffer[..filled]);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if !head.starts_with("HTTP/1.1 200 ") {
                return Err(io::Error::other(format!("not what was asked for: {head}")));
            }
            let lengths = head.lines().filter_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
            });
            if lengths.last().is_some_and(|length| body.len() >= length) {
                return Ok(());
            }
        }
    }
}
