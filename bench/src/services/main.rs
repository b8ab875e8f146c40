//! `cargo xtask bench services [--quick]`: the services for other gateways compared with servers that do less: Redis
//! with a bare `INCR`, a gRPC service that answers without looking, nginx that answers 204.
//!
//! ```text
//!   core 0: the server             the other cores: the load
//! ```
//!
//! Each server has one thread. Servers are measured in turns, as ratios within a round, with CPU time as the kernel
//! counts it. The measured program is the `diana` next to this binary, or the one named by the variable `DIANA`.
//! redis-cell, limitador and throttlecrab take part if they are [named](peers).

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

mod bare_grpc;
mod grpc_load;
mod messages;
mod peers;
mod resp_load;
mod servers;

use diana_bench::report::{Goal, Report, ns};
use diana_bench::{Length, length, median, now, process_cpu};
use diana_testing::Wrk;
use servers::{Server, Servers};
use std::time::Duration;

/// A load: puts itself on a server for a time, and returns how many requests were answered.
type Load<'a> = &'a dyn Fn(&Server, Duration) -> u64;

fn main() {
    // The peer for gRPC is this program itself.
    if let Some(port) = bare_grpc::port_argument() {
        return bare_grpc::serve(port);
    }
    let Some(length) = length("services") else { return };
    let start = now();
    let servers = Servers::start(&process_cpu::reserve_core());
    let mut report = Report::default();
    for (depth, goal) in [(32, 0.6), (1, 1.1)] {
        report.section(&format!("the Redis protocol, {depth} in a pipeline, 8 connections"));
        let throttle = resp_load::commands("CL.THROTTLE", depth, |key| format!("bench:{key} 1000000 1000000 1"));
        let incr = resp_load::commands("INCR", depth, |key| format!("bench:{key}"));
        let diana = |server: &Server, time| resp_load::run(server.port, &throttle, depth, 6, time);
        let redis = |server: &Server, time| resp_load::run(server.port, &incr, depth, 1, time);
        compare(&mut report, length, (&servers.resp, &diana), (&servers.redis, &redis), goal);
        if let Some(cell) = &servers.peers.redis_cell {
            let goal = if depth == 1 { Goal::Information } else { Goal::AtMost(0.25) };
            compare_with(&mut report, length, (&servers.resp, &diana), (&cell.server, &diana), goal);
        }
    }
    report.section("gRPC: ShouldRateLimit, 64 in flight on one connection");
    let grpc = |server: &Server, time| grpc_load::rate_limits(server.port, 64, time);
    compare(&mut report, length, (&servers.envoy, &grpc), (&servers.bare_grpc, &grpc), 1.2);
    if let Some(limitador) = &servers.peers.limitador {
        compare(&mut report, length, (&servers.envoy, &grpc), (&limitador.server, &grpc), 0.5);
    }
    if let Some(throttlecrab) = &servers.peers.throttlecrab {
        let throttle = |server: &Server, time| grpc_load::throttles(server.port, 64, time);
        compare(&mut report, length, (&servers.envoy, &grpc), (&throttlecrab.server, &throttle), 0.7);
    }
    report.section("HTTP: GET /check, 64 connections");
    let check = |server: &Server, time| {
        let wrk = Wrk::new(&format!("http://127.0.0.1:{}", server.port)).connections(64).duration(time);
        let wrk = wrk.header("X-Forwarded-Method: GET").header("X-Forwarded-Uri: /open");
        wrk.header("X-Forwarded-For: 203.0.113.7").run(&["/check"]).unwrap().answers
    };
    compare(&mut report, length, (&servers.http, &check), (&servers.nginx, &check), 1.2);
    println!("{:.0?} in all; each server on its own core: {}", start.elapsed(), servers.has_own_core);
    report.print();
}

/// Reports the CPU per request of Diana compared with that of a peer, of which it should be at most this share.
fn compare(report: &mut Report, length: Length, own: (&Server, Load<'_>), peer: (&Server, Load<'_>), goal: f64) {
    compare_with(report, length, own, peer, Goal::AtMost(goal));
}

fn compare_with(report: &mut Report, length: Length, own: (&Server, Load<'_>), peer: (&Server, Load<'_>), goal: Goal) {
    let (rounds, slice) = match length {
        Length::Quick => (5, Duration::from_millis(400)),
        Length::Full => (15, Duration::from_secs(1)),
    };
    let measured = |(server, load): (&Server, Load<'_>), time| {
        let before = process_cpu::nanos(server.pid);
        let answers = load(server, time);
        assert!(answers > 0, "{}: no answers", server.name);
        (process_cpu::nanos(server.pid) - before) as f64 / answers as f64
    };
    for contender in [own, peer] {
        measured(contender, slice); // warms up
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The order changes from round to round.
        if round % 2 == 0 {
            ours.push(measured(own, slice));
            theirs.push(measured(peer, slice));
        } else {
            theirs.push(measured(peer, slice));
            ours.push(measured(own, slice));
        }
    }
    let ratio = median(ours.iter().zip(&theirs).map(|(own, peer)| own / peer).collect());
    let peer_text = format!("{} {}", peer.0.name, ns(median(theirs)));
    report.compare("  CPU a request", ns(median(ours)), peer_text, ratio, goal);
}
