//! `cargo xtask bench core [--quick]`: the library in process, compared with its peers and its goals.
//!
//! Each subject is a file that adds its lines to the [`Report`](report::Report). Time is measured as described in
//! [`diana_bench::rounds`]: in turns, as ratios within a round, so that results from a shared machine are still
//! meaningful.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

use diana_bench::rounds::Effort;
use diana_bench::{Length, alloc, instructions, length, report};

mod algorithms;
mod bare_cas;
mod direct;
mod instruction_counts;
mod keyed;
mod memory;
mod setup;
mod store;
mod threads;
mod worst_case;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn main() {
    if let Some(what) = instructions::requested() {
        return instruction_counts::run_counted(&what);
    }
    let Some(length) = length("core") else { return };
    let effort = Effort::of(length);
    let start = diana_bench::now();
    let mut report = report::Report::default();
    direct::run(&mut report, effort);
    keyed::run(&mut report, effort);
    threads::run(&mut report, effort);
    memory::run(&mut report, length);
    worst_case::run(&mut report, length);
    store::run(&mut report, effort);
    algorithms::run(&mut report, effort);
    instruction_counts::run(&mut report);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; {} rounds of {:?} slices; {:.0?} in all.", effort.rounds, effort.slice, start.elapsed());
    println!("Times and ratios are medians over rounds; a ratio compares slices of one round, so trust it before the");
    println!("times. Each check includes its own clock reading.\n");
    report.print();
}
