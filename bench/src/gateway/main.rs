//! `cargo xtask bench gateway [--quick] [--only NAME,...]`: `diana serve` compared with nginx with `limit_req`, and
//! with its goals.
//!
//! ```text
//!   core 0: the gateway            the other cores: wrk, the upstream (an nginx with a fixed answer), Redis
//! ```
//!
//! Both have one worker, log nothing, keep upstream connections alive, count by client address, and send the same
//! forwarding headers to the upstream. The measurement is described in [`measure`]: in turns, as ratios within a round,
//! with CPU time as the kernel counts it.
//!
//! The measured program is the `diana` next to this binary, or the one named by the variable `DIANA`.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use diana_bench::report::Report;
use diana_bench::{now, process_cpu};
use options::Options;
use setup::Stage;

mod half_load;
mod idle;
mod instruction_counts;
mod measure;
mod open_loop;
mod options;
mod self_comparison;
mod setup;
mod vs_nginx;

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
    let mut report = Report::default();
    vs_nginx::run(&mut report, &stage, &options);
    half_load::run(&mut report, &stage, &options);
    idle::run(&mut report, &stage, &options);
    self_comparison::rules(&mut report, &stage, &options);
    self_comparison::redis(&mut report, &stage, &options);
    instruction_counts::run(&mut report, &stage, &options);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let effort = options.effort;
    println!("{} and {}; {:.0?} in all.", setup::version_of_diana(), setup::version_of_nginx(), start.elapsed());
    println!(
        "{}{cores} for load and upstream; {} rounds of {:?}.",
        if stage.has_own_core() { "1 core for the gateway, " } else { "shared with the gateway: cores: " },
        effort.rounds,
        effort.slice
    );
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!("times. CPU is that of the gateway, user and system, per response received by wrk.\n");
    report.print();
}
