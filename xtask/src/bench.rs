//! `cargo xtask bench NAME [--quick]`: builds one of the `bench` package's binaries as users would build it, and runs it.
//!
//! The binaries only report: noise on a shared machine must not fail anybody's build, so a missed goal is a word in the
//! table and not an exit code.

use std::process::{Command, ExitCode};

/// Each bench: its name, the binary that measures it, and what it is about.
const BENCHES: &[(&str, &str, &str)] = &[
    (
        "core",
        "bench-core",
        "the library in process, beside governor, ratelimit, leaky-bucket and a bare atomic; --quick for some 20 s",
    ),
    (
        "redis",
        "bench-redis",
        "the store on Redis, beside a bare INCR: its CPU, commands and memory; --quick for some 20 s",
    ),
    (
        "rules",
        "bench-rules",
        "the engine with 1 to 10,000 rules, beside the core alone: time, instructions (valgrind), loading; --quick for some 20 s",
    ),
];

/// Runs the bench that is named first; the rest of `args` is its own.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", list());
        return ExitCode::SUCCESS;
    };
    let Some((_, binary, _)) = BENCHES.iter().find(|(known, ..)| known == name) else {
        eprintln!("bench: there is no bench `{name}`\n\n{}", list());
        return ExitCode::from(2);
    };
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["run", "--quiet", "--release", "--package", "diana-bench", "--bin", binary, "--"]).args(rest);
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("bench: cargo can't be started: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> String {
    let lines = BENCHES.iter().map(|(name, _, about)| format!("  {name:<8} {about}\n"));
    format!("cargo xtask bench NAME\n\n{}", lines.collect::<String>())
}
