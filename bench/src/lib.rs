//! Shared by the benches: the table that they print, measuring time (wall and CPU) and instructions, and what they
//! measure.
//!
//! Each bench is a binary: `core` is the library in process, `pace` streams and bytes at an even rate, `redis` the
//! store on Redis, `rules` the engine, `gateway` the program, `services` its
//! services for other gateways, `scale` how costs grow.

#![allow(clippy::missing_panics_doc, reason = "a bench stops with the line that failed")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a bench stops with the line that failed")]

use std::time::Instant;

pub mod alloc;
pub mod gateways;
pub mod instructions;
pub mod keys;
pub mod process_cpu;
pub mod report;
pub mod rounds;
pub mod rule_sets;

/// The length of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Enough for a smoke test and a rough result.
    Quick,
    /// Enough for a reliable result.
    Full,
}

/// Parses the command line of the bench `name`; reports errors.
pub fn length(name: &str) -> Option<Length> {
    let mut length = Length::Full;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => length = Length::Quick,
            other => {
                eprintln!("bench {name}: unknown option `{other}`; the only option is `--quick`");
                return None;
            }
        }
    }
    Some(length)
}

/// Returns the current time, for durations.
#[allow(clippy::disallowed_methods, reason = "a bench measures real time; limiters have their own clocks")]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the median.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
