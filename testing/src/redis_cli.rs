//! `redis-cli`, for setup and inspection: slower than a client library, but an independent reader.

use std::io;
use std::process::{Command, Stdio};

/// The timeout of a single command in seconds. A frozen server never answers, and `redis-cli` would wait for it
/// forever.
pub(crate) const COMMAND: &str = "10";

/// The timeout of forming a cluster.
pub(crate) const FORMING: &str = "60";

/// Runs `redis-cli` with `args` for at most `seconds`. Returns its output without the trailing newline, or its error
/// message as an error.
pub(crate) fn redis_cli(seconds: &str, password: Option<&str>, args: &[&str]) -> io::Result<String> {
    let mut command = Command::new("timeout");
    command.args([seconds, "redis-cli"]).args(args).stdin(Stdio::null());
    if let Some(password) = password {
        // Not as an argument: redis-cli warns about those, and every process could read it.
        command.env("REDISCLI_AUTH", password);
    }
    let output = command.output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(stdout.trim_end().to_owned()),
        Some(124) => {
            let problem = format!("`redis-cli {}` timed out after {seconds} s", args.join(" "));
            Err(io::Error::new(io::ErrorKind::TimedOut, problem))
        }
        Some(127) => {
            let problem = "`redis-cli` is not installed; `cargo xtask install` installs it";
            Err(io::Error::new(io::ErrorKind::NotFound, problem))
        }
        _ => {
            let problem = format!("`redis-cli {}`: {} {}", args.join(" "), stdout.trim(), stderr.trim());
            Err(io::Error::other(problem))
        }
    }
}
