//! Thousands of idle keep-alive connections: whether they stay open, and the memory of each.

use crate::options::Options;
use crate::peer_table::{Contenders, PeerTable, RowGoal};
use diana_bench::gateways::connection::{Call, Opener};
use diana_bench::gateways::load::{Effort, Load, measure};
use diana_bench::gateways::{ClientAddress, Gateway, Peer, Protocol, Stage, max_open_files};
use diana_bench::report::{Goal, Report};
use diana_testing::resident;
use std::io;
use std::time::Duration;

const CONNECTIONS: u64 = 8_000;

/// Name, title, protocol, and the maximum memory of a connection in bytes.
const SUBJECTS: [(&str, &str, Protocol, f64); 3] = [
    ("idle", "an idle HTTP/1 connection", Protocol::Http1, 2_048.0),
    ("idle-h2c", "an idle h2c connection", Protocol::H2c, 6_144.0),
    ("idle-tls", "an idle TLS connection", Protocol::Tls, 8_192.0),
];

pub(crate) fn run(report: &mut Report, table: &mut PeerTable, stage: &Stage, options: &Options) {
    for (name, title, protocol, max) in SUBJECTS {
        if !options.wants(name) {
            continue;
        }
        report.section(&format!("{title}, of 8,000"));
        // The descriptors of both sides, and those that a process has anyway.
        let max_files = max_open_files();
        if max_files < CONNECTIONS + 500 {
            let problem = format!("a process may open only {max_files} files (`ulimit -n`)");
            report.figure("  not measured", String::new(), problem);
            continue;
        }
        let contenders = Contenders::start(stage, table, ClientAddress::Connection, &Peer::ALL);
        let opener = Opener::new(stage.authority());
        let bytes: Vec<Option<f64>> = contenders
            .gateways()
            .iter()
            .map(|gateway| match each(gateway, protocol, &opener) {
                Ok(bytes) => Some(bytes),
                Err(problem) => {
                    report.figure(&format!("  {}", gateway.name), "not measured".to_owned(), problem.to_string());
                    None
                }
            })
            .collect();
        let Some(own) = bytes[0] else { continue };
        let (what, goal) = ("  resident memory", format!("goal {}", show(max)));
        report.compare(what, show(own), goal, own / max, Goal::AtMost(1.0));
        let of_peer = |peer| {
            let theirs = bytes[contenders.position(peer)?]?;
            Some((theirs, own / theirs))
        };
        table.add(title, show, own, of_peer, RowGoal::Max(max));
    }
}

/// Formats a number of bytes.
pub(crate) fn show(bytes: f64) -> String {
    format!("{bytes:.0} B")
}

/// Returns the memory of one idle connection that was used once.
fn each(gateway: &Gateway, protocol: Protocol, opener: &Opener) -> io::Result<f64> {
    // Warms up first: the memory of a gateway under load is not counted.
    measure(Effort { rounds: 1, slice: Duration::from_secs(1) }, Load::FORWARD.by(protocol), &[gateway]);
    let before = resident(gateway.pid)?;
    let mut connections: Vec<Box<dyn Call>> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = opener.open(gateway, protocol)?;
        connection.call()?;
        connections.push(connection);
    }
    let bytes = resident(gateway.pid)?.saturating_sub(before) as f64 / CONNECTIONS as f64;
    // Checks that every connection is still open.
    connections.iter_mut().try_for_each(|connection| connection.call())?;
    Ok(bytes)
}
