//! `diana schema`: the rule file as a JSON Schema, for editors.

use super::output;
use clap::Args;
use std::process::ExitCode;

/// Print the JSON Schema of the rule file, for editors
///
/// With it, an editor completes fields, describes each of them, and marks typos as you type.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Schema {}

const EXAMPLES: &str = "\
Examples:
  diana schema > diana.schema.json

Then name it in the first line of a rule file, for every editor with the YAML language server (VS Code with the YAML extension,
Neovim, Helix, Emacs, IntelliJ and others):

  # yaml-language-server: $schema=diana.schema.json

or once for all rule files, in VS Code's settings.json:

  \"yaml.schemas\": {\"./diana.schema.json\": \"diana*.yaml\"}

A rule file in JSON can be validated with any implementation of JSON Schema 2020-12. `diana check` is stricter: it also
reports fields that contradict each other.";

impl Schema {
    pub(crate) fn run(self) -> ExitCode {
        let schema = diana_rules::schema::rule_file(&diana_server::registry());
        output::print(&format!("{schema:#}\n")).map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }
}
