//! How it is measured: every gateway has a slice in every round, and only slices of one round are compared.
//!
//! The machine is shared and its speed changes from second to second; two slices that lie beside each other see the same
//! machine. The order changes from round to round. The gateway's CPU is read off the process before and after each slice.

use crate::setup::Gateway;
use diana_bench::report::ns;
use diana_bench::{cpu, median};
use diana_testing::{Wrk, WrkRun};
use std::time::Duration;

/// How long to measure.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) slice: Duration,
}

/// What is asked.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    /// In turn.
    pub(crate) paths: &'static [&'static str],
    pub(crate) connections: u32,
    pub(crate) keeping: LeaseGuard,
}

/// What becomes of a connection after a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseGuard {
    Alive,
    /// `Connection: close`.
    Closed,
}

impl Load {
    pub(crate) const FORWARD: Self = Self { paths: &["/open"], connections: 64, keeping: LeaseGuard::Alive };
    pub(crate) const HALF: Self = Self { paths: &["/open", "/shut"], ..Self::FORWARD };
    pub(crate) const REFUSE: Self = Self { paths: &["/shut"], ..Self::FORWARD };

    fn run(self, gateway: &Gateway, duration: Duration) -> WrkRun {
        let mut wrk = Wrk::new(&gateway.url).connections(self.connections).duration(duration);
        if self.keeping == LeaseGuard::Closed {
            wrk = wrk.header("Connection: close");
        }
        let run = wrk.run(self.paths).unwrap();
        self.check(gateway, &run);
        run
    }

    /// A bench that measures something else than it says is worse than none.
    fn check(self, gateway: &Gateway, run: &WrkRun) {
        let shut = self.paths.iter().filter(|&&path| path == "/shut").count() as u64;
        let expected = run.answers * shut / self.paths.len() as u64;
        // A few pass before the limit is used up or when it has a new place, and some are under way at the end.
        let slack = if shut == 0 { 0 } else { u64::from(self.connections) + 5 };
        let name = gateway.name;
        assert!(
            run.answers > 0 && run.refused.abs_diff(expected) <= slack,
            "{name}: not what this measures, {expected} of its answers should be refusals: {run:?}"
        );
        assert!(run.errors * 1_000 <= run.answers, "{name}: connections fail: {run:?}");
    }
}

/// One slice.
#[derive(Clone, Copy)]
struct Slice {
    run: WrkRun,
    cpu: f64,
}

/// What was measured, by gateway and round.
pub(crate) struct Measured {
    slices: Vec<Vec<Slice>>,
}

/// A figure of one slice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// The gateway's CPU for one answer, in nanoseconds.
    Cpu,
    /// Answers a second.
    Rate,
    /// Nanoseconds, as wrk sees it.
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

    /// As the report calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "  CPU a request",
            Self::Rate => "  requests a second",
            Self::P50 => "  p50",
            Self::P99 => "  p99",
        }
    }

    /// As it is read.
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

    /// The same, in that of a peer.
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
            let before = cpu::nanos(gateways[index].pid);
            let run = load.run(gateways[index], effort.slice);
            let cpu = (cpu::nanos(gateways[index].pid) - before) as f64;
            slices[index].push(Slice { run, cpu });
        }
    }
    Measured { slices }
}
