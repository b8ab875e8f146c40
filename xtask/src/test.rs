//! `cargo xtask test`: everything that must hold before a change lands, in the order in which it fails fastest.

use crate::install;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// One check: what it is called, and the command that makes it.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

/// The model checkers replace the locks of the whole build, so each has a folder of its own, and optimised code, since
/// it runs it a great many times.
const STEPS: &[Step] = &[
    Step { name: "format", args: &["fmt", "--all", "--check"], env: &[] },
    Step {
        name: "clippy",
        args: &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
        env: &[],
    },
    Step {
        name: "clippy without features",
        args: &["clippy", "--package", "diana-core", "--no-default-features", "--", "-D", "warnings"],
        env: &[],
    },
    Step {
        name: "rustdoc",
        args: &["doc", "--workspace", "--no-deps", "--all-features"],
        env: &[("RUSTDOCFLAGS", "-D warnings")],
    },
    Step { name: "tests and doctests", args: &["test", "--workspace", "--all-features"], env: &[] },
    Step {
        name: "loom",
        args: &["test", "--package", "diana-core", "--lib", "--release", "--target-dir", "target/loom", "--", "loom"],
        env: &[("RUSTFLAGS", "--cfg loom")],
    },
    Step {
        name: "shuttle",
        args: &["test", "--package", "diana-core", "--test", "shuttle", "--release", "--target-dir", "target/shuttle"],
        env: &[("RUSTFLAGS", "--cfg shuttle")],
    },
];

/// Licences, bans and sources are known from the crates themselves; advisories would need a database from elsewhere.
const DENY: &[&str] = &["deny", "check", "bans", "licenses", "sources"];

/// Runs every check; stops at the first that fails.
pub(crate) fn run(args: &[String]) -> ExitCode {
    if let Some(unknown) = args.first() {
        eprintln!("test: takes no argument, but got `{unknown}`; for one test use `cargo test --workspace NAME`");
        return ExitCode::from(2);
    }
    // First, though it is needed late: what can't be installed is better known now than after minutes of building.
    println!("=== servers for the tests ===");
    if let Err(problem) = install::programs() {
        eprintln!("test: {problem}");
        return ExitCode::FAILURE;
    }
    let mut times = Vec::new();
    for step in STEPS {
        println!("\n=== {} ===", step.name);
        let (passed, took) = timed(|| cargo(step.args, step.env));
        times.push((step.name, took));
        if !passed {
            eprintln!("\n{} failed; to repeat it: {}cargo {}", step.name, prefix(step.env), step.args.join(" "));
            return ExitCode::FAILURE;
        }
    }
    println!("\n=== cargo-deny ===");
    if !cargo_deny_is_there() {
        println!("SKIPPED: cargo-deny is not installed, so licences and sources of dependencies were not checked.");
        println!("To have it: cargo install --locked cargo-deny");
    } else if !cargo(DENY, &[]) {
        eprintln!("\ncargo-deny failed; deny.toml says what is allowed");
        return ExitCode::FAILURE;
    }
    println!();
    for (name, took) in times {
        println!("{:>7.1} s  {name}", took.as_secs_f64());
    }
    ExitCode::SUCCESS
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).args(args).envs(env.iter().copied()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cargo can't be started: {error}");
            false
        }
    }
}

fn cargo_deny_is_there() -> bool {
    Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|output| output.status.success())
}

#[allow(clippy::disallowed_methods, reason = "this tells a person how long a step took")]
fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn prefix(env: &[(&str, &str)]) -> String {
    env.iter().map(|(name, value)| format!("{name}=\"{value}\" ")).collect()
}
