//! The measurement: every gateway has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second; two consecutive slices see the same machine. The
//! order changes from round to round. The gateway's CPU time is read before and after each slice.

use crate::setup::Gateway;
use diana_bench::report::ns;
use diana_bench::{median, process_cpu};
use diana_testing::{Wrk, WrkRun};
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// The load of a slice.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// Requested in turn.
    pub(crate) paths: &'static [&'static str],
    pub(crate) connections: u32,
    pub(crate) reuse: ConnReuse,
}

/// Whether connections are reused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnReuse {
    Alive,
    /// `Connection: close`.
    Closed,
}

impl Load {
    pub(crate) const FORWARD: Self = Self { paths: &["/open"], connections: 64, reuse: ConnReuse::Alive };
    pub(crate) const HALF: Self = Self { paths: &["/open", "/shut"], ..Self::FORWARD };
    pub(crate) const DENY: Self = Self { paths: &["/shut"], ..Self::FORWARD };

    fn run(self, gateway: &Gateway, duration: Duration) -> WrkRun {
        let mut wrk = Wrk::new(&gateway.url).connections(self.connections).duration(duration);
        if self.reuse == ConnReuse::Closed {
            wrk = wrk.header("Connection: close");
        }
        let run = wrk.run(self.paths).unwrap();
        self.check(gateway, &run);
        run
    }

    /// Fails if the run did not measure what it claims to measure.
    fn check(self, gateway: &Gateway, run: &WrkRun) {
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

/// One slice.
#[derive(Clone, Copy)]
struct Slice {
    run: WrkRun,
    cpu: f64,
}

/// The measurements, by gateway and round.
pub(crate) struct Measured {
    slices: Vec<Vec<Slice>>,
}

/// A figure of one slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The gateway's CPU per response, in nanoseconds.
    Cpu,
    /// Responses per second.
    Rate,
    /// Nanoseconds, as measured by wrk.
    P50,
    P99,
}

impl Figure {
    fn of(self, slice: &Slice) -> f64 {
        match self {
            Self::Cpu => slice.cpu / slice.run.answers as f64,
            Self::Rate => slice.run.rate(),
            Self::P50 => slice.run.p50.as_nanos() as f64,
            Self::P99 => slice.run.p99.as_nanos() as f64,
        }
    }

    /// Returns its name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "  CPU a request",
            Self::Rate => "  requests a second",
            Self::P50 => "  p50",
            Self::P99 => "  p99",
        }
    }

    /// Formats a value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Rate => format!("{:.1} k/s", value / 1e3),
            Self::Cpu | Self::P50 | Self::P99 => ns(value),
        }
    }
}

impl Measured {
    pub(crate) fn median(&self, gateway: usize, figure: Figure) -> f64 {
        median(self.slices[gateway].iter().map(|slice| figure.of(slice)).collect())
    }

    /// Returns the figure relative to that of a peer.
    pub(crate) fn ratio(&self, gateway: usize, peer: usize, figure: Figure) -> f64 {
        let pairs = self.slices[gateway].iter().zip(&self.slices[peer]);
        median(pairs.map(|(slice, peer)| figure.of(slice) / figure.of(peer)).collect())
    }
}

/// Puts `load` on each of the gateways in turns.
pub(crate) fn measure(effort: Effort, load: Load, gateways: &[&Gateway]) -> Measured {
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
