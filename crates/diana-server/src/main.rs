//! The program `diana`.

mod cli;
mod command;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::Cli::parse().command.run()
}
