//! `cargo xtask bench pace [--quick]`: streams, sinks, iterators, readers and writers at an even rate: their accuracy,
//! and its cost.
//!
//! A rate is the amount that passed after the burst was used up, divided by the time. The worst gap is the longest time
//! in which nothing passed: the ideal is the rate's own interval, and the rest is the timer's resolution (a
//! millisecond) and other load on the machine.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]

use diana_bench::rounds::Effort;
use diana_bench::{Length, length, now, report};
use std::time::Duration;

mod adapters;
mod costs;
mod flow_meter;
mod rates;

fn main() {
    let Some(length) = length("pace") else { return };
    let (run, slice) = match length {
        Length::Quick => (Duration::from_secs(2), Duration::from_millis(200)),
        Length::Full => (Duration::from_secs(10), Duration::from_secs(1)),
    };
    let start = now();
    let mut report = report::Report::default();
    rates::run(&mut report, run);
    costs::run(&mut report, Effort::of(length), slice);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("{cores} cores; rates over {run:?}, all at the same time; {:.0?} in all.", start.elapsed());
    println!(
        "A ratio of rates is the measured rate relative to the configured one. Times are medians, and CPU is that"
    );
    println!("of the process.\n");
    report.print();
}
