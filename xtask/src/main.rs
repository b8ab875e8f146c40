//! The project's development commands.

use std::process::ExitCode;

mod archive;
mod bench;
mod docs;
mod image;
mod install;
mod recording;
mod release;
mod test;

const HELP: &str = "\
cargo xtask COMMAND

  test             all checks before a change is merged: format, lints, licences, docs, tests, model checkers;
                   begins with `install`
  test --quick     format, lints, and the tests of crates that differ from HEAD, or from `--base REVISION`
  test --core      format, lints and tests of core, rules and engine: no servers, nothing installed, minutes
  install          install missing programs: those that the tests start (Redis, etcd, nginx, wrk, h2load; Envoy, Traefik,
                   Caddy and Redis clients in target/test-tools), and cargo-deny
  bench NAME       measure Diana beside its peers, and compare with the goals; without NAME, list the benches
  golden FILE...   replay recorded answers of real systems, print mismatches, exit 1 if there are any;
                   --store redis starts a Redis for it
  docs             check the pages of docs, and build the site with mdBook in target/docs/site; `docs check` only checks
  docs plots       draw the pictures of docs/explanations/algorithms.md again
  archive          build the program for glibc 2.31 and later, with checksum and list of dependencies, in target/archives;
                   `--try` runs it in a Debian with that glibc (as root)
  image            run the steps of packaging/Dockerfile without Docker, and try the result (as root; ten minutes);
                   `--try` only tries the result of the last build
  release VERSION  check versions, changelog and docs, build all packages and the archive, and tag the commit;
                   `--check` does all but the tag; nothing is published
  recording        run the first file of the README, and write the session to docs/images/terminal.svg
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let command = args.next();
    let rest: Vec<String> = args.collect();
    match command.as_deref() {
        Some("test") => test::run(&rest),
        Some("install") => install(),
        Some("bench") => bench::run(&rest),
        Some("golden") => golden(&rest),
        Some("docs") => docs::run(&rest),
        Some("archive") => archive::run(&rest),
        Some("image") => image::run(&rest),
        Some("release") => release::run(&rest),
        Some("recording") => recording::run(),
        Some("help" | "--help" | "-h") | None => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("xtask: unknown command `{other}`\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

fn install() -> ExitCode {
    match install::all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("install: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the program that replays recorded responses. It is a separate crate so that the other commands don't wait for
/// the stores to be built.
fn golden(args: &[String]) -> ExitCode {
    let run = ["run", "--quiet", "--package", "diana-golden", "--"];
    match test::cargo_command().args(run).args(args).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("golden: can't start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
