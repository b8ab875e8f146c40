//! `diana reload`: makes a running Diana read its rules and certificates again.

use super::admin::{AdminOptions, model, print_json};
use super::output;
use clap::Args;
use std::process::ExitCode;

/// Read the rules and certificates of a running Diana again, as SIGHUP does
///
/// Diana finds changes by itself; this does not wait for it, and reports whether the rules are valid, and which changed
/// settings wait for a restart.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Reload {
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

/// The exit status if changed settings wait for a restart.
const NEEDS_RESTART: u8 = 4;

const EXAMPLES: &str = "\
The exit status is 0 if the rules are valid and all settings apply; 1 if the rules are invalid, or if Diana does not answer; 2 for
an invalid command line; and 4 if the rules are valid, but changed settings wait for a restart.

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
            let printed = if self.json { print_json(&response) } else { output::print(&reloaded.describe()) };
            Ok(printed.and(match (reloaded.ok, reloaded.settings.waiting.is_empty()) {
                (false, _) => {
                    for what in reloaded.failures().filter(|_| !self.json) {
                        output::failure(&what);
                    }
                    Err(ExitCode::FAILURE)
                }
                (true, false) => Err(ExitCode::from(NEEDS_RESTART)),
                (true, true) => Ok(()),
            }))
        })?
    }
}
