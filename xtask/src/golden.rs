//! `cargo xtask golden FILE...`: replays what real systems answered, and prints where Diana answers otherwise.
//!
//! A file has one scenario a line, in JSON. What it was recorded from tells how it is replayed: `kind` is a limiter of
//! Guava's, `script` a Lua script of the seed documents.

use serde_json::Value;
use std::path::Path;
use std::process::ExitCode;

mod guava;
mod lua;

/// One answer that is not the recorded one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Which step of the scenario, counted from 0; `None` for its end.
    pub(crate) step: Option<usize>,
    /// What was recorded.
    pub(crate) expected: String,
    /// What Diana answers.
    pub(crate) actual: String,
}

/// How one file fared.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) scenarios: usize,
    pub(crate) steps: usize,
    /// The scenario (its line, counted from 1) and what went wrong in it.
    pub(crate) mismatches: Vec<(usize, Mismatch)>,
}

/// Replays `files`, prints a line for each and every mismatch; success if there is none.
pub(crate) fn run(files: &[String]) -> ExitCode {
    if files.is_empty() {
        eprintln!("golden: name at least one file, as in `cargo xtask golden golden/*.jsonl`");
        return ExitCode::from(2);
    }
    let mut failed = false;
    for file in files {
        match replay_file(Path::new(file)) {
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

/// Replays one file.
pub(crate) fn replay_file(file: &Path) -> Result<Report, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("can't be read: {error}"))?;
    let mut report = Report::default();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = index + 1;
        let scenario: Value = serde_json::from_str(line).map_err(|error| format!("line {number}: {error}"))?;
        let replay = replay(&scenario).map_err(|problem| format!("line {number}: {problem}"))?;
        report.scenarios += 1;
        report.steps += replay.steps;
        report.mismatches.extend(replay.mismatches.into_iter().map(|mismatch| (number, mismatch)));
    }
    Ok(report)
}

/// How one scenario fared.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    pub(crate) steps: usize,
    pub(crate) mismatches: Vec<Mismatch>,
}

/// Replays one scenario; an error if it is not in a format that is known here.
fn replay(scenario: &Value) -> Result<Replay, String> {
    if scenario.get("kind").is_some() {
        guava::replay(scenario)
    } else if scenario.get("script").is_some() {
        lua::replay(scenario)
    } else {
        Err("neither `kind` (a limiter of Guava's) nor `script` (a Lua script) is there".to_owned())
    }
}

fn print(file: &str, report: &Report) {
    let Report { scenarios, steps, mismatches } = report;
    println!("{file}: {scenarios} scenarios, {steps} steps, {} mismatches", mismatches.len());
    for (line, Mismatch { step, expected, actual }) in mismatches {
        let place = step.map_or_else(|| "end".to_owned(), |step| format!("step {step}"));
        println!("  line {line}, {place}: expected {expected}, got {actual}");
    }
}
