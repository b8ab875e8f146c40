//! Thousands of idle keep-alive connections: whether they stay open, and the memory of each.

use crate::measure::{Effort, Load, measure};
use crate::open_loop::Connection;
use crate::options::Options;
use crate::setup::{Gateway, SAME_AS_NGINX, Stage};
use diana_bench::report::{Goal, Report};
use diana_testing::resident;
use rustix::process::{Resource, getrlimit};
use std::time::Duration;

const CONNECTIONS: u64 = 8_000;
/// The maximum memory of a connection.
const MAX_BYTES: f64 = 2_048.0;

pub(crate) fn run(report: &mut Report, stage: &Stage, options: &Options) {
    if !options.wants("idle") {
        return;
    }
    report.section("8,000 idle connections");
    // The descriptors of both sides, and those that a process has anyway.
    let max_files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if max_files < CONNECTIONS + 500 {
        return report.figure(
            "  not measured",
            String::new(),
            format!("a process may open only {max_files} files (`ulimit -n`)"),
        );
    }
    let [diana, nginx] =
        [each(&stage.diana("diana", "", SAME_AS_NGINX)), each(&stage.nginx())].map(|bytes| bytes as f64);
    let show = |bytes: f64| format!("{bytes:.0} bytes");
    let (what, goal) = ("  memory for each (resident)", format!("goal {}", show(MAX_BYTES)));
    report.compare(what, show(diana), goal, diana / MAX_BYTES, Goal::AtMost(1.0));
    report.compare(what, show(diana), format!("nginx {}", show(nginx)), diana / nginx, Goal::Information);
}

/// Returns the memory of one idle connection that was used once.
fn each(gateway: &Gateway) -> u64 {
    // Warms up first: the memory of a gateway under load is not counted.
    measure(Effort { rounds: 1, slice: Duration::from_secs(1) }, Load::FORWARD, &[gateway]);
    let before = resident(gateway.pid).unwrap();
    let mut connections: Vec<Connection> = (0..CONNECTIONS).map(|_| Connection::open(gateway.port).unwrap()).collect();
    connections.iter_mut().for_each(|connection| connection.call().unwrap());
    let bytes = resident(gateway.pid).unwrap().saturating_sub(before) / CONNECTIONS;
    // Checks that every connection is still open.
    connections.iter_mut().for_each(|connection| connection.call().unwrap());
    bytes
}
