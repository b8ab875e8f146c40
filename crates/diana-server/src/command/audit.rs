//! `diana audit`: the last changes in a running Diana, and their authors.

use super::admin::{AdminOptions, model, print_json};
use super::output;
use clap::Args;
use std::process::ExitCode;

/// Show the last changes of keys and rules: who, what, when, before and after
///
/// Resets, refunds, charges and reloads, through the admin API, the Redis protocol or a signal; and changed rules. The newest
/// comes first. A running Diana keeps the last 100; with `admin: {audit_log: FILE}` the file has all of them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Audit {
    /// Show at most so many changes
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

const EXAMPLES: &str = "\
The exit status is 0 if Diana answers, 1 if not, and 2 for an invalid command line.

Examples:
  diana audit
  diana audit --limit 100 --json | jq '.entries[] | select(.who == \"alice\")'";

impl Audit {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn try_run(&self) -> Result<(), ExitCode> {
        let limit = self.limit.to_string();
        self.admin.ask(async |client| {
            let response = client.get("/audit", &[("limit", &limit)]).await?;
            if self.json {
                return Ok(print_json(&response));
            }
            let audit = client.parse::<model::Audit>("/audit", response)?;
            Ok(output::print(&audit.describe()))
        })?
    }
}
