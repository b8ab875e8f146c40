//! `diana check`: whether a rule file is good, and what its rules mean.
//!
//! The exit status is 0 if every file is good, else 1. All that is wrong is told at once.

use super::reading::{self, counted};
use clap::Args;
use diana_rules::{RuleFile, gateway_in_words, table};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check rule files, and say in words what their rules mean
///
/// What is wrong is told all at once, on standard error, each with its line and what would do. Nothing is started, and nobody
/// is asked: neither the store nor the configuration centre need be there. `${VARIABLES}` come from the environment.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The rule files: YAML or JSON, or TOML by name; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check what a configuration centre would send, together with the local file
    ///
    /// Its rules are in place of the file's own. It may have `version`, `revision`, `identity`, `status`, `answer` and `rules`; `${VARIABLES}` are
    /// not replaced in it.
    #[arg(long, value_name = "DOC")]
    remote: Option<PathBuf>,
    /// Leave the table out
    #[arg(short, long)]
    quiet: bool,
}

const EXAMPLES: &str = "\
The exit status is 0 if all is good, 1 if something is wrong, and 2 if the command is.

Examples:
  diana check diana.yaml
  diana check --quiet conf/*.yaml                       in a pipeline, before they are rolled out
  diana import nginx /etc/nginx/nginx.conf | diana check -
  diana check diana.yaml --remote centre.yaml           before it is put into etcd";

/// What a file means: its gateway, and its rules.
fn shown(file: &RuleFile) -> String {
    let gateway = gateway_in_words(file);
    let mut text = gateway.iter().map(|line| format!("{line}\n")).collect::<String>();
    if !gateway.is_empty() {
        text.push('\n');
    }
    if !file.rules.is_empty() {
        text.push_str(&format!("{}\n", table(file)));
    }
    text
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().unwrap_or_else(|code| code)
    }

    fn try_run(&self) -> Result<ExitCode, ExitCode> {
        reading::stdin_is_read_once(self.files.iter().chain(&self.remote))?;
        let mut problems = 0;
        for (nth, path) in self.files.iter().enumerate() {
            match reading::rule_file(path, self.remote.as_deref(), &diana::registry()) {
                Err(wrong) => problems += wrong.tell(),
                Ok(file) => {
                    let mut text = String::new();
                    if !self.quiet {
                        text = shown(&file);
                        if nth > 0 && !text.is_empty() {
                            text.insert(0, '\n');
                        }
                    }
                    if let Some(warnings) = &file.warnings {
                        reading::warn(warnings);
                    }
                    let rules = counted(file.rules.len(), "rule");
                    reading::print(&format!("{text}{}: {rules}, good\n", self.called(path)))?;
                }
            }
        }
        Ok(if problems == 0 { ExitCode::SUCCESS } else { reading::tell_count(problems) })
    }

    fn called(&self, path: &Path) -> String {
        match &self.remote {
            None => reading::name(path),
            Some(remote) => format!("{} over {}", reading::name(remote), reading::name(path)),
        }
    }
}
