//! `diana reload`: makes a running Diana read its rules and certificates again.

use super::admin::{AdminOptions, model, print_json};
use super::output;
use clap::Args;
use std::process::ExitCode;

/// Read the rules and certificates of a running Diana again, as SIGHUP does
///
/// Diana finds changes by itself; this does not wait for it, and reports whether the rules are valid.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reload {
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

const EXAMPLES: &str = "\
The exit status is 0 if the rules are valid; 1 if not, or if Diana does not answer; and 2 for an invalid command line.

Examples:
  diana reload
  diana reload --admin http://10.0.0.7:9090 --token-file /run/secrets/diana";

impl Reload {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn try_run(&self) -> Result<(), ExitCode> {
        self.admin.ask(async |client| {
            let response = client.post("/reload").await?;
            let reloaded = client.parse::<model::Reloaded>("/reload", response.clone())?;
            if self.json { print_json(&response) } else { output::print(&reloaded.describe()) }
                .map_or_else(|code| Ok(Err(code)), |()| Ok(if reloaded.ok { Ok(()) } else { Err(ExitCode::FAILURE) }))
        })?
    }
}
