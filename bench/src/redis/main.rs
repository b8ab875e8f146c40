//! `cargo xtask bench redis [--quick]`: the store on Redis, compared with a bare `INCR` and its goals, on its own
//! `redis-server`.
//!
//! Each subject is a file that adds its lines to the [`Report`](report::Report). The measurement is described in
//! [`measure`]: in turns, as ratios within a round, with Redis's CPU time as the kernel counts it.
//!
//! A *command* is one that a client sends. Commands that a script runs inside of Redis don't count, though `INFO`
//! includes them in the commands processed.
//!
//! With `REDIS_CELL=PATH`, the redis-cell module at that path takes part.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use diana_bench::{Length, length, now, report};
use measure::Effort;
use std::time::Duration;

mod attack;
mod batching;
mod leases;
mod measure;
mod memory;
mod one_call;
mod setup;

fn main() {
    let Some(length) = length("redis") else { return };
    let effort = match length {
        Length::Quick => Effort { rounds: 5, slice: Duration::from_millis(60) },
        Length::Full => Effort { rounds: 15, slice: Duration::from_millis(200) },
    };
    let start = now();
    let server = setup::Server::start();
    let mut report = report::Report::default();
    one_call::run(&mut report, &server, effort);
    batching::run(&mut report, &server, effort);
    leases::run(&mut report, &server, effort);
    attack::run(&mut report, &server, length);
    memory::run(&mut report, &server, length);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; {} rounds of {:?} slices; {:.0?} in all.", effort.rounds, effort.slice, start.elapsed());
    println!("{}; client and server share the cores.", server.version());
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!(
        "times. CPU is that of the redis-server process, user and system. A command is one that a client sends.\n"
    );
    report.print();
}
