//! The program `diana`.

mod cli;
mod command;

use clap::Parser;
use std::process::ExitCode;

/// The allocator returns memory within seconds of a burst of connections; that of the system keeps it.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    cli::Cli::parse().command.run()
}
