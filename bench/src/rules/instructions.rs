//! Instructions of one operation, by callgrind: the same on every machine, whoever else is on it.
//!
//! The bench runs itself under valgrind, which counts only what happens within [`super::measured_operations`].

use std::process::Command;

/// The instructions of one operation of `what` with so many rules; what is in the way, if they can't be counted.
pub(crate) fn count(what: &str, rules: usize) -> Result<f64, String> {
    const OPERATIONS: u64 = 2_000;
    collected(what, rules, OPERATIONS).map(|collected| collected as f64 / OPERATIONS as f64)
}

fn collected(what: &str, rules: usize, operations: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*measured_operations*"])
        .arg(program);
    valgrind.args(["--count", what, &rules.to_string(), &operations.to_string()]);
    let output =
        valgrind.output().map_err(|error| format!("valgrind can't be started (apt install valgrind): {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok());
    collected.ok_or_else(|| format!("valgrind counted nothing: {text}"))
}
