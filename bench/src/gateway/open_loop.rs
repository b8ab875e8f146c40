//! An open-loop load: requests are due at fixed times, independent of the responses, and latency counts from the time
//! at which a request was due. wrk has a closed loop: it sends less when responses are slow, and so does not see the
//! latency of independent clients.
//!
//! One thread sends and receives on all connections, since it must leave most of its core to the upstream.

use diana_bench::gateways::connection::{Connection, LONG, Received};
use diana_bench::now;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::TcpStream;
use std::time::Duration;

/// The maximum number of active requests; a request that is due when all are active waits, and its latency grows.
const CONNECTIONS: usize = 32;

/// Sends requests for `/open` to `port` at this rate, for this duration. Returns all latencies, sorted.
pub(crate) fn run(port: u16, rate: f64, duration: Duration) -> Vec<Duration> {
    let gap = Duration::from_secs_f64(1.0 / rate);
    let mut connections: Vec<Connection<TcpStream>> =
        (0..CONNECTIONS).map(|_| Connection::open(port).unwrap()).collect();
    let mut free: Vec<usize> = (0..CONNECTIONS).collect();
    let mut due_times = vec![now(); CONNECTIONS];
    let mut latencies = Vec::new();
    let mut due = now();
    let end = due + duration;
    while due < end || free.len() < CONNECTIONS {
        let mut time = now();
        while due < end && due <= time {
            let Some(index) = free.pop() else { break };
            connections[index].send().unwrap();
            due_times[index] = due;
            due += gap;
            time = now();
        }
        // Until the next request is due, if it can be sent.
        let until = if due < end && !free.is_empty() { due.saturating_duration_since(time) } else { LONG };
        for index in readable(&connections, &free, until) {
            if connections[index].receive().unwrap() == Received::All {
                latencies.push(now().saturating_duration_since(due_times[index]));
                free.push(index);
            }
        }
    }
    latencies.sort_unstable();
    latencies
}

/// Returns the busy connections that are readable, as soon as there is one or the time has passed.
fn readable(connections: &[Connection<TcpStream>], free: &[usize], until: Duration) -> Vec<usize> {
    let busy: Vec<usize> = (0..connections.len()).filter(|index| !free.contains(index)).collect();
    let mut polled: Vec<PollFd<'_>> =
        busy.iter().map(|&index| PollFd::new(connections[index].stream(), PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: until.as_secs().cast_signed(), tv_nsec: until.subsec_nanos().into() };
    let count = poll(&mut polled, Some(&timeout)).unwrap();
    assert!(count > 0 || until < LONG, "no response within {LONG:?}");
    busy.into_iter().zip(&polled).filter(|(_, polled)| !polled.revents().is_empty()).map(|(index, _)| index).collect()
}
