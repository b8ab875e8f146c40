//! Latency at half of nginx's maximum load: what clients see under normal load.

use crate::open_loop;
use crate::options::Options;
use diana_bench::gateways::load::{Effort, Figure, Load, measure};
use diana_bench::gateways::{ClientAddress, Diana, Gateway, Peer, Protocol, Stage};
use diana_bench::median;
use diana_bench::report::{Goal, Report, ns};

pub(crate) fn run(report: &mut Report, stage: &Stage, options: &Options) {
    if !options.wants("half-load") {
        return;
    }
    let (diana, nginx) = (stage.diana(Diana::DEFAULT), stage.peer(Peer::Nginx, ClientAddress::Connection).unwrap());
    let max_rate = measure(Effort { rounds: 1, ..options.effort }, Load::FORWARD, &[&nginx]).median(0, Figure::Rate);
    let rate = max_rate / 2.0;
    report.section(&format!("all forwarded at half of nginx's load: {:.1} k/s, open loop", rate / 1e3));
    let gateways = [&diana, &nginx];
    let mut rounds: [Vec<(f64, f64)>; 2] = Default::default();
    for round in 0..options.effort.rounds {
        for turn in 0..2 {
            let index = (round + turn) % 2;
            rounds[index].push(percentiles(gateways[index], rate, options.effort));
        }
    }
    for (what, of) in [("  p50", (|round: &(f64, f64)| round.0) as fn(&(f64, f64)) -> f64), ("  p99", |round| round.1)]
    {
        let [own, peer] = [0, 1].map(|index: usize| median(rounds[index].iter().map(of).collect()));
        let ratio = median(rounds[0].iter().zip(&rounds[1]).map(|(own, peer)| of(own) / of(peer)).collect());
        report.compare(what, ns(own), format!("nginx {}", ns(peer)), ratio, Goal::Information);
    }
}

/// Returns the median and the 99th percentile of the latency, in nanoseconds.
fn percentiles(gateway: &Gateway, rate: f64, effort: Effort) -> (f64, f64) {
    let latencies = open_loop::run(gateway.port(Protocol::Http1), rate, effort.slice);
    let at = |share: usize| latencies[latencies.len() * share / 100].as_nanos() as f64;
    (at(50), at(99))
}
