//! `cargo xtask golden [--store STORE] FILE...`: replays what real systems answered, and prints where Diana answers
//! otherwise.
//!
//! A file has one scenario a line, in JSON. What it was recorded from tells how it is replayed: `kind` is a limiter of
//! Guava's, `script` a Lua script of the seed documents.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use store::{Counts, NAMES, Stores};

mod guava;
mod lua;
mod store;

const HELP: &str = "\
cargo xtask golden [--store STORE] FILE...

Replays recorded answers of real systems, prints mismatches, and exits with 1 if there are any.

  --store memory   in process, as unless said otherwise
  --store redis    on Redis, which is started for it; what can't be kept there is left out, and told
";

/// One answer that is not the recorded one.
#[derive(Debug, PartialEq, Eq)]
struct Mismatch {
    /// Which step of the scenario, counted from 0; `None` for its end.
    step: Option<usize>,
    /// What was recorded.
    expected: String,
    /// What Diana answers.
    actual: String,
}

/// How one file fared.
#[derive(Debug, Default)]
struct Report {
    scenarios: usize,
    /// Those that were compared.
    steps: usize,
    /// Scenarios and steps that were not, by why.
    left_out: BTreeMap<String, (usize, usize)>,
    /// The scenario (its line, counted from 1) and what went wrong in it.
    mismatches: Vec<(usize, Mismatch)>,
}

/// Replays what the arguments name, prints a line for each file and every mismatch; success if there is none.
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let (stores, files) = match arguments(&args).and_then(|(store, files)| Ok((Stores::named(store)?, files))) {
        Ok(found) => found,
        Err(problem) => {
            eprintln!("golden: {problem}");
            return ExitCode::from(2);
        }
    };
    let mut failed = false;
    for file in files {
        match replay_file(Path::new(file), &stores) {
            Ok(report) => {
                failed |= !report.mismatches.is_empty();
                print(file, &report);
            }
            Err(problem) => {
                failed = true;
                eprintln!("{file}: {problem}");
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// The name of the store, and the files.
fn arguments(args: &[String]) -> Result<(&str, Vec<&str>), String> {
    let (mut store, mut files) = ("memory", Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--store" {
            store = args.next().ok_or_else(|| format!("--store needs the name of one: {NAMES}"))?;
        } else if let Some(name) = arg.strip_prefix("--store=") {
            store = name;
        } else if arg.starts_with('-') {
            return Err(format!("there is no option `{arg}`; the only one is --store"));
        } else {
            files.push(arg);
        }
    }
    if files.is_empty() {
        return Err("name at least one file, as in `cargo xtask golden golden/*.jsonl`".to_owned());
    }
    Ok((store, files))
}

/// Replays one file.
fn replay_file(file: &Path, stores: &Stores) -> Result<Report, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("can't be read: {error}"))?;
    let mut report = Report::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let scenario: Value = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let replay = replay(&scenario, &stores.empty()?).map_err(|problem| format!("line {number}: {problem}"))?;
        report.scenarios += 1;
        report.steps += replay.steps;
        if let Some((reason, steps)) = replay.left_out {
            let (scenarios, all) = report.left_out.entry(reason).or_default();
            (*scenarios, *all) = (*scenarios + 1, *all + steps);
        }
        report.mismatches.extend(replay.mismatches.into_iter().map(|mismatch| (number, mismatch)));
    }
    Ok(report)
}

/// How one scenario fared.
#[derive(Debug, Default)]
struct Replay {
    /// Those that were compared.
    steps: usize,
    /// Why the rest of them was not, and how many that are.
    left_out: Option<(String, usize)>,
    mismatches: Vec<Mismatch>,
}

/// Replays one scenario; an error if it is not in a format that is known here.
fn replay(scenario: &Value, counts: &Counts<'_>) -> Result<Replay, String> {
    if scenario.get("kind").is_some() {
        guava::replay(scenario, counts)
    } else if scenario.get("script").is_some() {
        lua::replay(scenario, counts)
    } else {
        Err("neither `kind` (a limiter of Guava's) nor `script` (a Lua script) is there".to_owned())
    }
}

fn print(file: &str, report: &Report) {
    let Report { scenarios, steps, left_out, mismatches } = report;
    println!("{file}: {scenarios} scenarios, {steps} steps compared, {} mismatches", mismatches.len());
    for (reason, (scenarios, steps)) in left_out {
        println!("  left out: {steps} steps in {scenarios} scenarios: {reason}");
    }
    for (line, Mismatch { step, expected, actual }) in mismatches {
        let place = step.map_or_else(|| "end".to_owned(), |step| format!("step {step}"));
        println!("  line {line}, {place}: expected {expected}, got {actual}");
    }
}

#[cfg(test)]
mod tests;
