//! The command line and its help.
//!
//! Each command is a file in `command/`, with its arguments and its `run`; this file only lists them.

use crate::command::{check, explain, import, schema, serve};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Diana, a rate limiter
///
/// Denies or delays requests over a limit, so that the rest is served. Limits are written in a rule file.
#[derive(Debug, Parser)]
#[command(name = "diana", version, subcommand_required = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  diana serve                                               run the gateway on sample rules, and look around
  diana serve --config diana.yaml                           run it on yours
  diana check diana.yaml                                    is the file good, and what does it mean?
  diana explain diana.yaml /login --ip 203.0.113.7          what do the rules say about a request?
  diana schema > diana.schema.json                          let your editor know the rule file
  diana import nginx /etc/nginx/nginx.conf > diana.yaml     move in from nginx
  diana import envoy config.yaml > diana.yaml               move in from Envoy's rate limit service

`diana COMMAND --help` tells more about a command.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Schema(schema::Schema),
    Import(import::Import),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
            Self::Schema(schema) => schema.run(),
            Self::Import(import) => import.run(),
        }
    }
}
