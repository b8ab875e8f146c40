//! The program `diana`.

mod cli;
mod command;

use clap::Parser;
use std::process::ExitCode;

/// After a burst of connections their memory is returned within seconds; that of the system's allocator stays in use.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::Cli::parse().command.run()
}
