//! What the benches share: the table that they print, and a reading of time, wall and CPU.
//!
//! Each bench is a binary of its own: `core` is the library in process, `pace` streams and bytes at an even rate, `redis` the
//! store on Redis, `rules` the engine, `gateway` the program.

#![allow(clippy::missing_panics_doc, reason = "a bench stops with the line that failed")]

use std::time::Instant;

pub mod cpu;
pub mod instructions;
pub mod report;
pub mod rounds;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Enough to see that it runs, and where it stands.
    Quick,
    /// Enough to believe.
    Full,
}

/// What the command line of the bench `name` says; what is wrong with it is shown.
pub fn length(name: &str) -> Option<Length> {
    let mut length = Length::Full;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--quick" => length = Length::Quick,
            other => {
                eprintln!("bench {name}: there is no option `{other}`; there is `--quick`");
                return None;
            }
        }
    }
    Some(length)
}

/// The time, for durations.
#[allow(clippy::disallowed_methods, reason = "a bench measures real time; limiters have their own clocks")]
pub fn now() -> Instant {
    Instant::now()
}

/// The middle one.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
