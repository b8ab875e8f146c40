//! The measurement: every gateway has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second; two consecutive slices see the same machine. The
//! order changes from round to round. The gateway's CPU time is read before and after each slice: it includes the
//! accepting of the slice's connections, and with TLS their handshakes.
//!
//! wrk is the client for HTTP/1, with and without TLS; h2load for HTTP/2, and it reports no percentiles.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use super::{Gateway, Protocol};
use crate::report::ns;
use crate::{median, process_cpu};
use diana_testing::{H2load, Wrk};
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    pub slice: Duration,
}

/// The load of a slice.
#[derive(Clone, Copy)]
pub struct Load {
    /// Requested in turn.
    pub paths: &'static [&'static str],
    pub protocol: Protocol,
    pub connections: u32,
    pub reuse: ConnReuse,
}

/// Whether connections are reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ConnReuse {
    Alive,
    /// `Connection: close`.
    Closed,
}

impl Load {
    pub const FORWARD: Self =
        Self { paths: &["/open"], protocol: Protocol::Http1, connections: 64, reuse: ConnReuse::Alive };
    pub const HALF: Self = Self { paths: &["/open", "/shut"], ..Self::FORWARD };
    pub const DENY: Self = Self { paths: &["/shut"], ..Self::FORWARD };

    /// Returns the same load by another protocol.
    pub const fn by(self, protocol: Protocol) -> Self {
        Self { protocol, ..self }
    }

    fn run(self, gateway: &Gateway, duration: Duration) -> Run {
        let url = gateway.url(self.protocol);
        let run = match self.protocol {
            Protocol::H2c => {
                // As many requests in flight as connections with HTTP/1.
                let h2load = H2load::new(&url).connections(self.connections / STREAMS).streams(STREAMS);
                let run = h2load.duration(duration).run(self.paths).unwrap();
                Run { answers: run.answers, denied: run.denied, errors: run.errors, took: duration, percentiles: None }
            }
            Protocol::Http1 | Protocol::Tls => {
                let mut wrk = Wrk::new(&url).connections(self.connections).duration(duration);
                if self.reuse == ConnReuse::Closed {
                    wrk = wrk.header("Connection: close");
                }
                let run = wrk.run(self.paths).unwrap();
                let percentiles = Some([run.p50, run.p99]);
                Run { answers: run.answers, denied: run.denied, errors: run.errors, took: run.took, percentiles }
            }
        };
        self.check(gateway, &run);
        run
    }

    /// Fails if the run did not measure what it claims to measure.
    fn check(self, gateway: &Gateway, run: &Run) {
        let shut = self.paths.iter().filter(|&&path| path == "/shut").count() as u64;
        let expected = run.answers * shut / self.paths.len() as u64;
        // A few are allowed before the limit is used up or when it regains a permit, and some are active at the end.
        let slack = if shut == 0 { 0 } else { u64::from(self.connections) + 5 };
        let name = gateway.name;
        assert!(
            run.answers > 0 && run.denied.abs_diff(expected) <= slack,
            "{name}: expected {expected} denied responses, found {run:?}"
        );
        assert!(run.errors * 1_000 <= run.answers, "{name}: too many failed connections: {run:?}");
    }
}

/// The requests in flight on each HTTP/2 connection.
const STREAMS: u32 = 8;

/// The responses of a slice.
#[derive(Clone, Copy, Debug)]
struct Run {
    answers: u64,
    denied: u64,
    errors: u64,
    took: Duration,
    /// The median and the 99th percentile of the latency, if the client reports them.
    percentiles: Option<[Duration; 2]>,
}

/// One slice.
#[derive(Clone, Copy)]
struct Slice {
    run: Run,
    cpu: f64,
}

/// The measurements, by gateway and round.
pub struct Measured {
    slices: Vec<Vec<Slice>>,
}

/// A figure of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The gateway's CPU per response, in nanoseconds.
    Cpu,
    /// Responses per second.
    Rate,
    /// Nanoseconds, as measured by wrk; NaN if h2load was the client.
    P50,
    P99,
}

impl Figure {
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Rate, Self::P50, Self::P99];

    fn of(self, slice: &Slice) -> f64 {
        match self {
            Self::Cpu => slice.cpu / slice.run.answers as f64,
            Self::Rate => slice.run.answers as f64 / slice.run.took.as_secs_f64(),
            Self::P50 => slice.run.percentiles.map_or(f64::NAN, |[p50, _]| p50.as_nanos() as f64),
            Self::P99 => slice.run.percentiles.map_or(f64::NAN, |[_, p99]| p99.as_nanos() as f64),
        }
    }

    /// Returns its name in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "  CPU a request",
            Self::Rate => "  requests a second",
            Self::P50 => "  p50",
            Self::P99 => "  p99",
        }
    }

    /// Formats a value with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{:.1} k/s", value / 1e3),
            Self::Cpu | Self::P50 | Self::P99 => ns(value),
        }
    }
}

impl Measured {
    pub fn median(&self, gateway: usize, figure: Figure) -> f64 {
        median(self.slices[gateway].iter().map(|slice| figure.of(slice)).collect())
    }

    /// Returns the figure relative to that of a peer.
    pub fn ratio(&self, gateway: usize, peer: usize, figure: Figure) -> f64 {
        let pairs = self.slices[gateway].iter().zip(&self.slices[peer]);
        median(pairs.map(|(slice, peer)| figure.of(slice) / figure.of(peer)).collect())
    }
}

/// Puts `load` on each of the gateways in turns.
pub fn measure(effort: Effort, load: Load, gateways: &[&Gateway]) -> Measured {
    for gateway in gateways {
        load.run(gateway, Duration::from_secs(1)); // warms up
    }
    let mut slices = vec![Vec::with_capacity(effort.rounds); gateways.len()];
    for round in 0..effort.rounds {
        for turn in 0..gateways.len() {
            let index = (round + turn) % gateways.len();
            let before = process_cpu::nanos(gateways[index].pid);
            let run = load.run(gateways[index], effort.slice);
            let cpu = (process_cpu::nanos(gateways[index].pid) - before) as f64;
            slices[index].push(Slice { run, cpu });
        }
    }
    Measured { slices }
}

/// Returns the CPU per response in nanoseconds without that of opening the connections: of thousands it would be most
/// of a short slice. It is the difference of a slice and one that is three times as long.
pub fn cpu_without_connecting(slice: Duration, load: Load, gateway: &Gateway) -> f64 {
    // wrk takes some second to open ten thousand.
    let duration = slice * (1 + load.connections / 4_000);
    let [short, long] = [duration, duration * 3].map(|duration| {
        let before = process_cpu::nanos(gateway.pid);
        let run = load.run(gateway, duration);
        ((process_cpu::nanos(gateway.pid) - before) as f64, run.answers as f64)
    });
    (long.0 - short.0) / (long.1 - short.1)
}
