//! `diana what-if`: what another limit would deny, estimated from the keys that a running Diana has seen.

use super::admin::{AdminOptions, model, print_json};
use super::output;
use super::top::Window;
use clap::Args;
use std::process::ExitCode;

/// Estimate what another limit of a rule would deny
///
/// The estimate is made from the heaviest keys of the last minute or hour. For a lower limit, a shadow rule counts exactly; with
/// `--shadow-rule` it is printed, to be added to the rule file. For a higher one it can't: a shadow rule only sees requests
/// that the other rules allow.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct WhatIf {
    /// The name of the rule
    #[arg(value_name = "RULE")]
    rule: String,
    /// The limit to try: 200/min, or `200/min burst 50`
    #[arg(value_name = "LIMIT")]
    limit: String,
    /// Which of several limits of the rule to replace: 1 is the first
    ///
    /// Without it, the one with the same period, such as the hour of `200/h`.
    #[arg(long, value_name = "N")]
    index: Option<u64>,
    /// The time of which the keys are
    #[arg(long, value_enum, default_value_t = Window::Minute)]
    window: Window,
    /// Print only the shadow rule, as YAML
    #[arg(long, conflicts_with = "json")]
    shadow_rule: bool,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

const EXAMPLES: &str = "\
The exit status is 0 if Diana answers; 1 if not, or for an unknown rule or an invalid limit; and 2 for an invalid command line.

Examples:
  diana what-if each-account 200/min
  diana what-if each-account 50/min --shadow-rule
  diana what-if each-account 500/h --index 2            the second of its limits
  diana what-if each-account 200/min --json | jq '.would_deny'";

impl WhatIf {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn try_run(&self) -> Result<(), ExitCode> {
        let index = self.index.map(|index| index.to_string());
        let mut parameters = vec![("rule", &*self.rule), ("limit", &*self.limit), ("window", self.window.name())];
        parameters.extend(index.as_deref().map(|index| ("index", index)));
        self.admin.ask(async |client| {
            let response = client.get("/what-if", &parameters).await?;
            if self.json {
                return Ok(print_json(&response));
            }
            let estimate = client.parse::<model::WhatIf>("/what-if", response)?;
            match (self.shadow_rule, estimate.shadow_rule()) {
                (false, _) => Ok(output::print(&estimate.describe())),
                (true, rule) if rule.is_empty() => Ok(Err(output::failure(
                    "a shadow rule can't count this limit: it only sees requests that the current limit allows; try a lower one",
                ))),
                (true, rule) => Ok(output::print(&rule)),
            }
        })?
    }
}
