//! `cargo xtask bench NAME [--quick]`: builds one of the `bench` package's binaries in release mode, and runs it.
//! Programs that it measures come first: Diana's own is built, missing ones are installed.
//!
//! The binaries only report: noise on a shared machine must not fail a build, so a missed goal is a word in the table
//! and not an exit code.

use crate::install;
use std::process::{Command, ExitCode};

/// Each bench: its name, its binary, and its subject.
const BENCHES: &[(&str, &str, &str)] = &[
    (
        "core",
        "bench-core",
        "the library in process, beside governor, ratelimit, leaky-bucket and a bare atomic: time, memory, instructions \
         (valgrind); --quick for some 50 s",
    ),
    (
        "gateway",
        "bench-gateway",
        "`diana serve` beside nginx, HAProxy and Envoy, by HTTP/1, h2c and TLS: CPU a request, rate, latency, memory of idle \
         connections and of keys; Redis, instructions (valgrind); some 18 min, --quick for some 6; --only NAME,... for some of \
         forward, refuse, half, close-forward, close-refuse, h2c-forward, h2c-refuse, tls-forward, tls-refuse, many-forward, \
         many-refuse, idle, idle-h2c, idle-tls, key-memory, half-load, rules, redis, instructions",
    ),
    (
        "macros",
        "bench-macros",
        "a function with a limit on it beside an explicit check: time, instructions (valgrind); --quick for some 10 s",
    ),
    (
        "pace",
        "bench-pace",
        "streams, sinks, iterators, readers and writers at an even rate: how close to it over 10 s, beside governor's \
         streams, and their CPU; some 40 s, --quick for some 10",
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
    (
        "scale",
        "bench-scale",
        "how costs grow with keys (to 10 million), rules, matching limits and connections (to 10,000): time, instructions \
         (valgrind), memory, and the slope beside what the docs claim; some 5 min, --quick for some 2; --only NAME,... for some \
         of keys, rules, limits, connections",
    ),
    (
        "services",
        "bench-services",
        "the services for other gateways beside Redis's INCR, a gRPC service that answers without looking, and nginx: CPU a \
         request; some 2 min, --quick for some 20 s; REDIS_CELL=MODULE, LIMITADOR=PROGRAM and THROTTLECRAB=PROGRAM add \
         these limiters",
    ),
];

/// Runs the bench named by the first argument; the rest of `args` is passed to it.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let Some((name, rest)) = args.split_first() else {
        print!("{}", list());
        return ExitCode::SUCCESS;
    };
    let Some((_, binary, _)) = BENCHES.iter().find(|(known, ..)| known == name) else {
        eprintln!("bench: unknown bench `{name}`\n\n{}", list());
        return ExitCode::from(2);
    };
    if let Err(problem) = programs(name) {
        eprintln!("bench: {problem}");
        return ExitCode::FAILURE;
    }
    let mut cargo = cargo();
    cargo.args(["run", "--quiet", "--release", "--package", "diana-bench", "--bin", binary, "--"]).args(rest);
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("bench: can't start cargo: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Builds or installs the programs that a bench starts; fails with a message.
fn programs(name: &str) -> Result<(), String> {
    match name {
        "core" | "macros" | "rules" => {
            // Without valgrind they report all but the instructions.
            install::install_missing(&["valgrind"]).unwrap_or_else(|problem| eprintln!("bench: {problem}"));
            return Ok(());
        }
        "gateway" => {
            install::install_missing(&["nginx", "wrk", "h2load", "redis-server", "redis-cli", "valgrind"])?;
            // Without one of these its column is empty. Envoy comes with `cargo xtask install`.
            install::install_missing(&["haproxy"]).unwrap_or_else(|problem| eprintln!("bench: {problem}"));
        }
        "scale" => install::install_missing(&["nginx", "wrk", "valgrind"])?,
        "services" => install::install_missing(&["nginx", "wrk", "redis-server"])?,
        _ => return Ok(()),
    }
    // It is built next to the bench, where the bench expects it.
    let status =
        cargo().args(["build", "--quiet", "--release", "--package", "diana-server", "--bin", "diana"]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("can't build diana".to_owned()),
        Err(problem) => Err(format!("can't start cargo: {problem}")),
    }
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn list() -> String {
    let lines = BENCHES.iter().map(|(name, _, about)| format!("  {name:<8} {about}\n"));
    format!("cargo xtask bench NAME\n\n{}", lines.collect::<String>())
}
