//! `diana peek`, `diana reset` and `diana refund`: the counts of a single key in a running Diana.

use super::admin::{AdminClient, AdminError, AdminOptions, model, print_json};
use super::output;
use clap::Args;
use serde_json::Value;
use std::process::ExitCode;

/// A key of a rule.
#[derive(Debug, Args)]
struct KeyName {
    /// The name of the rule
    #[arg(value_name = "RULE")]
    rule: String,
    /// The parts of the key, in the order of the rule's `by`; none for a rule that counts everyone together
    #[arg(value_name = "KEY")]
    key: Vec<String>,
}

/// Show what is left for a key of a rule, and whether it would be allowed
///
/// Nothing is charged.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = PEEK)]
pub(crate) struct Peek {
    #[command(flatten)]
    key: KeyName,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

/// Reset the counts of a key, as if it had sent no requests
///
/// A shared limit is reset for all instances. The change is logged by Diana.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = RESET)]
pub(crate) struct Reset {
    #[command(flatten)]
    key: KeyName,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

/// Refund a cost to a key, as if that much had not been counted
///
/// A shared limit is refunded for all instances. The change is logged by Diana.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = REFUND)]
pub(crate) struct Refund {
    #[command(flatten)]
    key: KeyName,
    /// The cost to refund
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    cost: u64,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    admin: AdminOptions,
}

const PEEK: &str = "\
The exit status is 0 if Diana answers, whatever it would decide; 1 if not, or for an unknown rule; and 2 for an invalid command line.

Examples:
  diana peek each-account alice
  diana peek each-route 203.0.113.7 /search             a rule with `by: [ip, path]`
  diana peek everyone                                   a rule without `by`
  diana peek each-account -- -x                         a key that starts with a hyphen
  diana peek each-account alice --json | jq '.limits[0].remaining'";

const RESET: &str = "\
The exit status is 0 if the key was reset, 1 if not, and 2 for an invalid command line.

Examples:
  diana reset each-account alice
  diana reset each-route 203.0.113.7 /search            a rule with `by: [ip, path]`
  diana reset everyone                                  a rule without `by`";

const REFUND: &str = "\
The exit status is 0 if the cost was refunded, 1 if not, and 2 for an invalid command line.

Examples:
  diana refund each-account alice
  diana refund each-account alice --cost 50             after a failed batch, say";

impl Peek {
    pub(crate) fn run(self) -> ExitCode {
        self.admin.key("/peek", &self.key, None, format(self.json))
    }
}

impl Reset {
    pub(crate) fn run(self) -> ExitCode {
        self.admin.key("/reset", &self.key, None, format(self.json))
    }
}

impl Refund {
    pub(crate) fn run(self) -> ExitCode {
        self.admin.key("/refund", &self.key, Some(self.cost), format(self.json))
    }
}

/// The format of a response.
#[derive(Clone, Copy)]
enum Format {
    Text,
    Json,
}

const fn format(json: bool) -> Format {
    if json { Format::Json } else { Format::Text }
}

impl AdminOptions {
    fn key(&self, path: &'static str, key: &KeyName, cost: Option<u64>, format: Format) -> ExitCode {
        let printed = self.ask(async |client| {
            let response = key.send(client, path, cost).await?;
            match format {
                Format::Json => Ok(print_json(&response)),
                Format::Text => {
                    let status = client.parse::<model::KeyStatus>(path, response)?;
                    let done = match (path, cost) {
                        ("/reset", _) => "reset: ".to_owned(),
                        ("/refund", Some(cost)) => format!("refunded {cost}: "),
                        _ => String::new(),
                    };
                    Ok(output::print(&format!("{done}{}", status.describe())))
                }
            }
        });
        printed.and_then(|printed| printed).map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }
}

impl KeyName {
    async fn send(&self, client: &AdminClient, path: &'static str, cost: Option<u64>) -> Result<Value, AdminError> {
        let cost = cost.map(|cost| cost.to_string());
        let mut parameters = vec![("rule", &*self.rule)];
        parameters.extend(self.key.iter().map(|part| ("key", &**part)));
        parameters.extend(cost.as_deref().map(|cost| ("cost", cost)));
        client.key_json(path, &parameters).await
    }
}
