//! `cargo xtask bench gateway [--quick] [--only NAME,...]`: `diana serve` compared with nginx, HAProxy and Envoy, and
//! with its goals.
//!
//! ```text
//!   core 0: the gateway            the other cores: wrk or h2load, the upstream (an nginx with a fixed answer), Redis
//! ```
//!
//! All have one worker, log no requests, keep upstream connections alive, count by client address, and send the same
//! forwarding headers to the upstream. Each peer has the configuration that its users would write for such a limit:
//! [`Peer`](diana_bench::gateways::Peer). A peer that can't be started is reported, and its column of the table stays
//! empty. The measurement is described in [`load`](diana_bench::gateways::load): in turns, as ratios within a round, with
//! CPU time as the kernel counts it.
//!
//! The measured program is the `diana` next to this binary, or the one named by the variable `DIANA`.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use diana_bench::gateways::{Stage, version_of_diana};
use diana_bench::report::Report;
use diana_bench::{now, process_cpu};
use options::Options;
use peer_table::PeerTable;

mod half_load;
mod idle;
mod instruction_counts;
mod key_memory;
mod open_loop;
mod options;
mod peer_table;
mod self_comparison;
mod vs_peers;

fn main() {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return;
        }
    };
    let start = now();
    let stage = Stage::start(process_cpu::reserve_core());
    let (mut report, mut table) = (Report::default(), PeerTable::default());
    vs_peers::run(&mut report, &mut table, &stage, &options);
    idle::run(&mut report, &mut table, &stage, &options);
    key_memory::run(&mut report, &mut table, &stage, &options);
    half_load::run(&mut report, &stage, &options);
    self_comparison::rules(&mut report, &stage, &options);
    self_comparison::redis(&mut report, &stage, &options);
    instruction_counts::run(&mut report, &stage, &options);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let effort = options.effort;
    println!("{}; {:.0?} in all.", version_of_diana(), start.elapsed());
    println!(
        "{}{cores} for load and upstream; {} rounds of {:?}.",
        if stage.has_own_core() { "1 core for the gateway, " } else { "shared with the gateway: cores: " },
        effort.rounds,
        effort.slice
    );
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!("times. CPU is that of the gateway, user and system, per response received by wrk or h2load.\n");
    report.print();
    table.print();
}
