//! `diana top`: who is limited, by which rule, now; in a terminal, or once on standard output.
//!
//! ```text
//!   keys of the terminal ──┐                              ┌── view.rs: the state as a screen, a pure function
//!                          ├─▶ Event ─▶ App (state.rs) ───┤
//!   answers of the server ─┘            input.rs: keys    └── Request ─▶ worker.rs: asks the server, once a second and
//!                                                                        when the user wants something
//! ```
//!
//! [`terminal`] connects them: it owns the terminal, and restores it however the program ends. The state never waits:
//! it changes only by events.

mod input;
mod rates;
mod state;
mod terminal;
mod text;
mod theme;
mod view;
mod worker;

use super::admin::{AdminError, AdminOptions, model, print_json};
use super::output;
use clap::{Args, ValueEnum};
use std::io::{self, IsTerminal};
use std::process::ExitCode;

/// Show live which keys are limited, and by which rules
///
/// A view of a running Diana in the terminal: the rules with the most denials first, the heaviest keys of the chosen rule, charts,
/// and what is degraded. Press `?` in it for its keys. With `--once` the heaviest keys are printed instead.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Top {
    /// Print the heaviest keys of each rule once, and exit
    #[arg(long)]
    once: bool,
    /// Print the server's JSON
    #[arg(long, requires = "once")]
    json: bool,
    /// The time that keys and charts are about
    #[arg(long, value_name = "WINDOW", default_value = "minute")]
    window: Window,
    /// Only this rule; in the view, the rule that is chosen at first
    #[arg(long, value_name = "RULE")]
    rule: Option<String>,
    /// Only keys that contain this text; in the view, also rules
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    find: String,
    /// The number of keys in each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    limit: u32,
    #[command(flatten)]
    admin: AdminOptions,
}

/// The time that keys and charts are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Window {
    /// The last minute
    Minute,
    /// The last hour
    Hour,
}

const EXAMPLES: &str = "\
Keys: up and down choose a rule, Tab its keys, p peeks at a key, r resets it, f refunds it, w asks what another limit would deny,
/ filters rules and keys, m switches between minute and hour, d a l n sort, ? helps, q quits. NO_COLOR turns colours off.

The exit status is 0; 1 if Diana can't be reached at the start; and 2 for an invalid command line.

Examples:
  diana top
  diana top --admin http://10.0.0.7:9090 --token-file /run/secrets/diana
  diana top --once                                      the heaviest keys of the last minute
  diana top --once --find alice                         which rules limit alice?
  diana top --once --json --window hour | jq -r '.rules[].denied.keys[0].text'";

impl Window {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    /// Returns the parameters of `/history`: its length and its step, in seconds. Both windows have sixty steps.
    fn history(self) -> (&'static str, &'static str) {
        match self {
            Self::Minute => ("60", "1"),
            Self::Hour => ("3600", "60"),
        }
    }
}

impl Top {
    pub(crate) fn run(self) -> ExitCode {
        let done = if self.once { self.once() } else { self.view() };
        done.map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn once(&self) -> Result<(), ExitCode> {
        let limit = self.limit.to_string();
        let mut parameters = vec![("window", self.window.name()), ("limit", &limit)];
        parameters.extend(self.rule.as_deref().map(|rule| ("rule", rule)));
        if !self.find.is_empty() {
            parameters.push(("find", &self.find));
        }
        self.admin.ask(async |client| {
            let response = client.get("/top", &parameters).await?;
            if self.json {
                return Ok(print_json(&response));
            }
            Ok(output::print(&client.parse::<model::Top>("/top", response)?.describe()))
        })?
    }

    fn view(self) -> Result<(), ExitCode> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() || self.admin.reads_stdin() {
            let help =
                "it needs a terminal as standard input and output; `diana top --once` prints to a file or a pipe";
            return Err(output::usage_error(&format!("can't show the view: {help}")));
        }
        // Before the screen is taken: an error that trying again does not resolve belongs on the command line.
        let admin = self.admin.ask(async |client| {
            client.status().await?;
            Ok::<_, AdminError>(client.admin().to_owned())
        })?;
        let client = self.admin.client()?;
        let app = state::App::new(admin, self.window, self.rule, self.find);
        terminal::run(app, client, self.limit)
            .map_err(|error| output::failure(&format!("the terminal failed: {error}")))
    }
}
