//! `cargo xtask test`: everything that must pass before a change is merged, ordered by how fast it fails.
//! `cargo xtask test --quick`: format, lints and the tests of the crates that changed, for daily work.
//! `cargo xtask test --core`: format, lints and tests of what decides, without any server, for a first change.

mod changed;
#[cfg(test)]
mod circles;
mod features;
mod workflows;

use crate::install;
use crate::release::crates;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// One check: its name, and the cargo command that runs it.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
}

const FORMAT: Step = Step { name: "format", args: &["fmt", "--all", "--check"], env: &[] };

const CLIPPY: Step = Step {
    name: "clippy",
    args: &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"],
    env: &[],
};

/// The crates that decide, with the features that need no server: algorithms, store, rules and engine.
const CORE: &[&str] = &[
    "--package",
    "diana-core",
    "--package",
    "diana-document",
    "--package",
    "diana-rules",
    "--package",
    "diana-limit",
    "--all-targets",
    "--features",
    "diana-core/async,diana-core/conformance,diana-limit/macros,diana-limit/pace,diana-limit/rules",
];

/// The model checkers replace the locks of the whole build, so each has its own target folder, and optimised code,
/// since it runs a great many times.
const STEPS: &[Step] = &[
    FORMAT,
    // Licences, bans and sources are known from the crates themselves; advisories would need an online database.
    Step {
        name: "cargo-deny",
        args: &["deny", "--log-level", "error", "check", "bans", "licenses", "sources"],
        env: &[],
    },
    CLIPPY,
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

/// Runs the checks; stops at the first that fails.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        [] => full(),
        ["--core"] => core(),
        ["--quick"] => quick("HEAD"),
        ["--quick", "--base", base] => quick(base),
        _ => {
            eprintln!(
                "test: unknown arguments `{}`; expected none, `--core`, or `--quick [--base REVISION]`; for one test use \
                 `cargo test --workspace --all-features NAME`",
                args.join(" ")
            );
            return ExitCode::from(2);
        }
    };
    result.map_or_else(
        |problem| {
            eprintln!("\ntest: {problem}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

fn full() -> Result<(), String> {
    // First, though it is needed late, so that a failed installation is reported before minutes of building.
    println!("=== servers and tools for the tests ===");
    install::all()?;
    let mut times = Vec::new();
    println!("\n=== workflows ===");
    let (checked, elapsed) = timed(workflows::run);
    checked?;
    times.push(("workflows", elapsed));
    for step in STEPS {
        times.push((step.name, run_step(step)?));
    }
    println!("\n=== packages ===");
    let (packaged, elapsed) = timed(|| crates::package(&crates::published()?, &["--no-verify"]));
    packaged?;
    times.push(("packages", elapsed));
    println!("\n=== features ===");
    let (checked, elapsed) = timed(features::run);
    checked?;
    times.push(("features", elapsed));
    println!();
    for (name, elapsed) in times {
        println!("{:>7.1} s  {name}", elapsed.as_secs_f64());
    }
    Ok(())
}

/// Runs format, clippy, and the tests of the crates that differ from `base` (committed or not).
fn quick(base: &str) -> Result<(), String> {
    let packages = changed::packages(base)?;
    install::programs()?;
    run_step(&FORMAT)?;
    run_step(&CLIPPY)?;
    if packages.is_empty() {
        println!(
            "\nno crate differs from {base}, so no tests were run; `--base REVISION` compares with another revision"
        );
        return Ok(());
    }
    println!("\n=== tests of {} ===", packages.join(", "));
    changed::run_tests(&packages)
}

/// Runs format, clippy and tests of the core. Nothing is installed, and no server is started.
fn core() -> Result<(), String> {
    run_step(&FORMAT)?;
    for (name, command, after) in [("clippy", "clippy", &["--", "-D", "warnings"][..]), ("tests", "test", &[])] {
        println!("\n=== {name} of core, rules and engine ===");
        if !cargo(&[&[command], CORE, after].concat(), &[]) {
            return Err(format!(
                "{name} of the core failed; to repeat it: cargo {command} {} {}",
                CORE.join(" "),
                after.join(" ")
            ));
        }
    }
    println!(
        "\ncore, rules and engine pass; `cargo xtask test` has the rest: servers, gateway, services, docs, model checkers"
    );
    Ok(())
}

fn run_step(step: &Step) -> Result<Duration, String> {
    println!("\n=== {} ===", step.name);
    let (passed, elapsed) = timed(|| cargo(step.args, step.env));
    if passed {
        return Ok(elapsed);
    }
    Err(format!("{} failed; to repeat it: {}cargo {}", step.name, prefix(step.env), step.args.join(" ")))
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> bool {
    match cargo_command().args(args).envs(env.iter().copied()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("can't start cargo: {error}");
            false
        }
    }
}

/// Returns the cargo that runs this program.
pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[allow(clippy::disallowed_methods, reason = "it reports the duration of a step")]
pub(crate) fn timed<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = std::time::Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn prefix(env: &[(&str, &str)]) -> String {
    env.iter().map(|(name, value)| format!("{name}=\"{value}\" ")).collect()
}
