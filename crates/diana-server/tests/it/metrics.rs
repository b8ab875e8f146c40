//! The metrics and the status of the running program, with real parts that fail and recover; and the files for
//! Prometheus and Grafana in `packaging`.

mod certificates;
mod monitoring_files;
mod outages;
mod upstream_counts;
mod waits;

use crate::support::program::Diana;
use serde_json::Value;

/// Returns `/status`.
fn status(diana: &Diana) -> Value {
    serde_json::from_str(&diana.admin("/status").text()).unwrap()
}

/// Returns the lines of the program's log with this level that contain a text.
fn log_lines(diana: &Diana, level: &str, text: &str) -> Vec<String> {
    let output = diana.output();
    let lines = output.lines().filter(|line| line.contains(level) && line.contains(text));
    lines.map(str::to_owned).collect()
}
