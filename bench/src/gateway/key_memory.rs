//! The memory of a key that is being limited: of clients with different addresses, one request each.

use crate::idle::show;
use crate::options::Options;
use crate::peer_table::{Contenders, PeerTable, RowGoal};
use diana_bench::gateways::{ClientAddress, Gateway, Peer, Protocol, Stage};
use diana_bench::report::Report;
use diana_testing::{Wrk, resident};
use std::time::Duration;

pub(crate) fn run(report: &mut Report, table: &mut PeerTable, stage: &Stage, options: &Options) {
    if !options.wants("key-memory") {
        return;
    }
    report.section("a limited key: an address that has used up its limit");
    let contenders = Contenders::start(stage, table, ClientAddress::ForwardedFor, &Peer::ALL);
    let bytes: Vec<f64> = contenders
        .gateways()
        .iter()
        .map(|gateway| {
            let (keys, bytes) = each(gateway, options.effort.slice * 4);
            report.figure(&format!("  {}, resident memory", gateway.name), show(bytes), format!("of {keys} keys"));
            bytes
        })
        .collect();
    let of_peer = |peer| contenders.position(peer).map(|index| (bytes[index], bytes[0] / bytes[index]));
    table.add("a limited key (IPv4 address)", show, bytes[0], of_peer, RowGoal::None);
}

/// Returns the number of keys that the gateway was asked for within this time, and the memory of each.
fn each(gateway: &Gateway, duration: Duration) -> (u64, f64) {
    let wrk = Wrk::new(&gateway.url(Protocol::Http1)).connections(64);
    // Warms up first, with the same load and one key.
    wrk.clone().header("X-Forwarded-For: 192.0.2.1").run(&["/open"]).unwrap();
    let before = resident(gateway.pid).unwrap();
    let run = wrk.distinct_clients().duration(duration).run(&["/shut"]).unwrap();
    // Each key is allowed its first request.
    assert!(run.answers > 0 && run.denied == 0 && run.errors == 0, "{}: {run:?}", gateway.name);
    let grown = resident(gateway.pid).unwrap().saturating_sub(before);
    (run.answers, grown as f64 / run.answers as f64)
}
