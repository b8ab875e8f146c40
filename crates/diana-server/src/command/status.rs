//! `diana status`: what a running Diana does, and what does not work.

use super::admin::{AdminOptions, model, print_json};
use super::output;
use clap::Args;
use std::process::ExitCode;

/// Show the status of a running Diana: its rules, requests, upstreams, and what is degraded
///
/// Asks the admin server of a running `diana serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Status {
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

const EXAMPLES: &str = "\
The exit status is 0 if Diana answers, also if it is degraded; 1 if not; and 2 for an invalid command line.

Examples:
  diana status
  diana status --admin http://10.0.0.7:9090 --token-file /run/secrets/diana
  diana status --json | jq '.degraded'                  what does not work, and since when";

impl Status {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn try_run(&self) -> Result<(), ExitCode> {
        self.admin.ask(async |client| {
            let response = client.get("/status", &[]).await?;
            if self.json {
                return Ok(print_json(&response));
            }
            let status = client.parse::<model::Status>("/status", response)?;
            Ok(output::print(&status.describe(client.admin())))
        })?
    }
}
