//! `cargo xtask bench scale [--quick] [--only NAME,...]`: how costs grow with keys, rules, matching limits and
//! connections, beside what the docs claim.
//!
//! Each table has a row for each step, with the cost's ratio to the step before and its slope, and ends with a claim.
//! Instructions are counted by callgrind, so that they repeat on a busy machine; time is measured where the cost is
//! that of caches or of the kernel, which instructions do not show.

#![allow(clippy::unwrap_used, reason = "a bench stops with the line that failed")]
#![allow(clippy::panic, reason = "a bench stops with the line that failed")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts and times of one run fit")]

mod connections;
mod keys;
mod limits;
mod rules;
mod steps;

use diana_bench::{Length, alloc, instructions, now};
use steps::{Claim, Steps};

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

/// Measures one subject.
type Subject = fn(&mut Tables, Length);

/// The subjects, as `--only` names them.
const SUBJECTS: [(&str, Subject); 4] =
    [("keys", keys::run), ("rules", rules::run), ("limits", limits::run), ("connections", connections::run)];

fn main() {
    if let Some(what) = instructions::requested() {
        let number = what[1].parse().unwrap();
        return match what[0].as_str() {
            "keys" => keys::counted(number),
            "rules" => rules::counted(number),
            subject => limits::counted(subject, number),
        };
    }
    let (length, only) = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => return eprintln!("bench scale: {problem}"),
    };
    let start = now();
    let mut tables = Tables::default();
    println!("Ratio and slope compare with the step before.");
    for (name, run) in SUBJECTS {
        if only.is_empty() || only.iter().any(|wanted| wanted == name) {
            run(&mut tables, length);
        }
    }
    match tables.missed[..] {
        [] => println!("\nall claims hold"),
        _ => println!("\nclaims that do not hold:\n  {}", tables.missed.join("\n  ")),
    }
    println!("{:.0?} in all", start.elapsed());
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<(Length, Vec<String>), String> {
    let names = SUBJECTS.map(|(name, _)| name);
    let help = format!("expected `--quick` or `--only NAME,...`, with names of {}", names.join(", "));
    let (mut length, mut only) = (Length::Full, Vec::new());
    while let Some(argument) = args.next() {
        match argument.as_str() {
            "--quick" => length = Length::Quick,
            "--only" => only.extend(args.next().unwrap_or_default().split(',').map(str::to_owned)),
            other => return Err(format!("unknown option `{other}`; {help}")),
        }
    }
    match only.iter().find(|name| !names.contains(&name.as_str())) {
        None => Ok((length, only)),
        Some(name) => Err(format!("unknown subject `{name}`; {help}")),
    }
}

/// Prints the tables, and collects the claims that do not hold.
#[derive(Default)]
pub(crate) struct Tables {
    missed: Vec<String>,
}

impl Tables {
    /// Prints a table with its claim.
    pub(crate) fn push(&mut self, steps: &Steps, claim: &Claim) {
        self.missed.extend(steps.print(claim));
    }

    /// Adds the instructions of a decision at each step; without valgrind, says so.
    pub(crate) fn push_instructions(&mut self, mut steps: Steps, what: &str, numbers: &[usize], claim: &Claim) {
        for &number in numbers {
            match instructions::count(&[what, &number.to_string()]) {
                Ok(count) => steps.push(number, count),
                Err(problem) => return eprintln!("not counted: {problem}"),
            }
        }
        self.push(&steps, claim);
    }
}
