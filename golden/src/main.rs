//! `cargo xtask golden [--store STORE] FILE...`: replays recorded answers of real systems, and prints where Diana's
//! differ.
//!
//! A file has one scenario per line, in JSON. Its source determines how it is replayed: `kind` is a Guava limiter,
//! `script` a reference Lua script, `server` redis-cell.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use store::{NAMES, ScenarioStore, Stores};

mod cell;
mod guava;
mod lua;
mod store;

const HELP: &str = "\
cargo xtask golden [--store STORE] FILE...

Replays recorded answers of real systems, prints mismatches, and exits with 1 if there are any.

  --store memory   in process (the default)
  --store redis    on Redis, which is started for it; unsupported steps are skipped and reported
";

/// An answer that differs from the recorded one.
#[derive(Debug, PartialEq, Eq)]
struct Mismatch {
    /// The step's index in the scenario; `None` for its end.
    step: Option<usize>,
    /// The recorded answer.
    expected: String,
    /// Diana's answer.
    actual: String,
}

/// The result of one file.
#[derive(Debug, Default)]
struct Report {
    scenarios: usize,
    /// Steps that were compared.
    steps: usize,
    /// Scenarios and steps that were not compared, by reason.
    skipped: BTreeMap<String, (usize, usize)>,
    /// The scenario's line number, and the mismatch.
    mismatches: Vec<(usize, Mismatch)>,
    /// The number of answers that differ on purpose.
    deviations: usize,
}

/// Replays the files in the arguments; prints a line for each file, and every mismatch. Succeeds if there is none.
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let (stores, files) = match arguments(&args).and_then(|(store, files)| Ok((Stores::named(store)?, files))) {
        Ok(parsed) => parsed,
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

/// Parses the name of the store, and the files.
fn arguments(args: &[String]) -> Result<(&str, Vec<&str>), String> {
    let (mut store, mut files) = ("memory", Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--store" {
            store = args.next().ok_or_else(|| format!("missing value of `--store`: expected {NAMES}"))?;
        } else if let Some(name) = arg.strip_prefix("--store=") {
            store = name;
        } else if arg.starts_with('-') {
            return Err(format!("unknown option `{arg}`; the only option is `--store`"));
        } else {
            files.push(arg);
        }
    }
    if files.is_empty() {
        return Err("missing file; expected at least one, such as `cargo xtask golden golden/*.jsonl`".to_owned());
    }
    Ok((store, files))
}

/// Replays one file.
fn replay_file(file: &Path, stores: &Stores) -> Result<Report, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("cannot be read: {error}"))?;
    let mut report = Report::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let scenario: Value = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let replay = replay(&scenario, &stores.empty()?).map_err(|problem| format!("line {number}: {problem}"))?;
        report.scenarios += 1;
        report.steps += replay.steps;
        if let Some((reason, steps)) = replay.skipped {
            let (scenarios, all) = report.skipped.entry(reason).or_default();
            (*scenarios, *all) = (*scenarios + 1, *all + steps);
        }
        report.deviations += replay.deviations.len();
        report.mismatches.extend(replay.mismatches.into_iter().map(|mismatch| (number, mismatch)));
    }
    Ok(report)
}

/// The result of one scenario.
#[derive(Debug, Default)]
struct Replay {
    /// Steps that were compared.
    steps: usize,
    /// Why the remaining steps were not compared, and how many there are.
    skipped: Option<(String, usize)>,
    mismatches: Vec<Mismatch>,
    /// Answers that differ on purpose, where the recorded one is a fault.
    deviations: Vec<Mismatch>,
}

/// Replays one scenario. Returns an error if its format is unknown.
fn replay(scenario: &Value, store: &ScenarioStore<'_>) -> Result<Replay, String> {
    if scenario.get("kind").is_some() {
        guava::replay(scenario, store)
    } else if scenario.get("script").is_some() {
        lua::replay(scenario, store)
    } else if scenario.get("server").is_some() {
        cell::replay(scenario, store)
    } else {
        Err("missing field `kind` (a Guava limiter), `script` (a Lua script) or `server` (redis-cell)".to_owned())
    }
}

fn print(file: &str, report: &Report) {
    let Report { scenarios, steps, skipped, mismatches, deviations } = report;
    println!("{file}: {scenarios} scenarios, {steps} steps compared, {} mismatches", mismatches.len());
    if *deviations > 0 {
        println!("  {deviations} answers differ on purpose, where the recorded one is a fault");
    }
    for (reason, (scenarios, steps)) in skipped {
        println!("  skipped: {steps} steps in {scenarios} scenarios: {reason}");
    }
    for (line, Mismatch { step, expected, actual }) in mismatches {
        let location = step.map_or_else(|| "end".to_owned(), |step| format!("step {step}"));
        println!("  line {line}, {location}: expected {expected}, found {actual}");
    }
}

#[cfg(test)]
mod tests;
