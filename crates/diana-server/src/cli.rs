//! The command line and its help.
//!
//! Each command is a file in `command/`, with its arguments and its `run`; this file only lists them.

use crate::command::{audit, check, completions, explain, import, key, reload, schema, serve, status, top, what_if};
use clap::{CommandFactory, Parser, Subcommand};
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
  diana serve                                               run the gateway with sample rules
  diana serve --config diana.yaml                           run it with your rules
  diana check diana.yaml                                    validate a file, and describe its rules
  diana explain diana.yaml /login --ip 203.0.113.7          show what the rules decide about a request
  diana top                                                 see live who is limited
  diana status                                              show what a running Diana does
  diana peek each-account alice                             show what is left for a key
  diana what-if each-account 200/min                        what would another limit deny?
  diana audit                                               show who changed what
  diana schema > diana.schema.json                          the JSON Schema of the rule file, for editors
  diana import nginx /etc/nginx/nginx.conf > diana.yaml     convert nginx's limits
  diana import envoy config.yaml > diana.yaml               convert the limits of Envoy's rate limit service

`diana COMMAND --help` describes a command.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Explain(explain::Explain),
    Top(top::Top),
    Status(status::Status),
    Peek(key::Peek),
    Reset(key::Reset),
    Refund(key::Refund),
    WhatIf(what_if::WhatIf),
    Reload(reload::Reload),
    Audit(audit::Audit),
    Schema(schema::Schema),
    Import(import::Import),
    Completions(completions::Completions),
    Man(completions::Man),
}

impl Command {
    pub(crate) fn run(self) -> ExitCode {
        match self {
            Self::Serve(serve) => serve.run(),
            Self::Check(check) => check.run(),
            Self::Explain(explain) => explain.run(),
            Self::Top(top) => top.run(),
            Self::Status(status) => status.run(),
            Self::Peek(peek) => peek.run(),
            Self::Reset(reset) => reset.run(),
            Self::Refund(refund) => refund.run(),
            Self::WhatIf(what_if) => what_if.run(),
            Self::Reload(reload) => reload.run(),
            Self::Audit(audit) => audit.run(),
            Self::Schema(schema) => schema.run(),
            Self::Import(import) => import.run(),
            Self::Completions(completions) => completions.run(Cli::command()),
            Self::Man(man) => man.run(Cli::command()),
        }
    }
}
