//! `diana check`: validates rule files and describes their rules in words.
//!
//! The exit status is 0 if every file is valid, else 1. All problems are reported at once.

use super::input::{self, InputError, TlsFiles, Variables};
use super::json::{self, Checked, CheckedFile};
use super::output::{self, count_of};
use clap::Args;
use diana_admin::AdminSection;
use diana_config::RemoteSection;
use diana_gateway::section::GatewaySection;
use diana_rules::describe::table;
use diana_rules::file::NotChecked;
use diana_rules::section::SectionNotRegistered;
use diana_rules::{Registry, RuleFile};
use diana_services::ServicesSection;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Check rule files, and describe in words what their rules mean
///
/// All problems are reported at once, on standard error, each with its line and a fix. Nothing is started, and neither
/// the store nor the config server is contacted. The certificates, keys and CA files that the file names are opened; with
/// `--no-files` they are not. `${VARIABLES}` come from the environment; with `--no-env` they are
/// left as they are, and the values that have them are not checked.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct Check {
    /// The rule files: YAML or JSON, or TOML by name; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check a document of a config server, together with the local file
    ///
    /// Its rules replace those of the file. It may have `version`, `revision`, `identity`, `status`, `answer` and
    /// `rules`; `${VARIABLES}` are not replaced in it.
    #[arg(long, value_name = "DOC")]
    remote: Option<PathBuf>,
    /// Leave `${VARIABLES}` as they are: for an environment without them, such as a pipeline without secrets
    ///
    /// Values that have variables are not checked, and listed on standard error. Everything else is checked as usual.
    #[arg(long)]
    no_env: bool,
    /// Do not open the certificates, keys and CA files: for a machine without them, such as that of a pipeline
    ///
    /// Otherwise one that is missing, unreadable, expired or of another key is a problem.
    #[arg(long)]
    no_files: bool,
    /// Do not print the table
    #[arg(short, long)]
    quiet: bool,
    /// Print the result as JSON on standard output: problems, warnings and rules of each file
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
}

const EXAMPLES: &str = "\
The exit status is 0 if all files are valid, 1 if not, and 2 for an invalid command line.

Examples:
  diana check diana.yaml
  diana check --quiet conf/*.yaml                       in a pipeline, before a rollout
  diana check --json diana.yaml | jq '.files[].errors[]'    file, line, column, message and help of each problem
  diana import nginx /etc/nginx/nginx.conf | diana check -
  diana check --no-env --no-files diana.yaml            in a pipeline without the secrets and certificates
  diana check diana.yaml --remote rules.yaml            before it is stored in etcd";

/// Describes a file: its gateway, its store, its config server, and its rules.
fn describe(file: &RuleFile) -> Result<String, SectionNotRegistered> {
    let mut sections = Vec::new();
    if let Some(gateway) = file.section::<GatewaySection>()? {
        sections.extend(gateway.describe());
        sections.push(file.section_or_default::<AdminSection>()?.describe());
    }
    sections.extend(file.section_or_default::<ServicesSection>()?.describe());
    sections.extend(file.store.describe());
    sections.extend(file.section::<RemoteSection>()?.map(RemoteSection::describe));
    if let Some(permissions) = &file.permissions {
        let shadow = if permissions.shadow { " (shadow: denials are only logged)" } else { "" };
        sections.push(format!("permissions{shadow}: {}", permissions.describe().join("; ")));
    }
    let mut text = sections.iter().map(|line| format!("{line}\n")).collect::<String>();
    if !sections.is_empty() {
        text.push('\n');
    }
    if !file.rules.is_empty() {
        text.push_str(&format!("{}\n", table(file)));
    }
    Ok(text)
}

impl Check {
    pub(crate) fn run(self) -> ExitCode {
        self.try_run().unwrap_or_else(|code| code)
    }

    fn try_run(&self) -> Result<ExitCode, ExitCode> {
        input::require_single_stdin(self.files.iter().chain(&self.remote))?;
        if self.json {
            return self.print_json();
        }
        let (mut problems, registry) = (0, diana_server::registry());
        for (index, path) in self.files.iter().enumerate() {
            match self.read(path, &registry) {
                Err(error) => problems += error.report(),
                Ok((file, not_checked)) => {
                    let mut text = String::new();
                    if !self.quiet {
                        text = describe(&file).map_err(|error| output::usage_error(&error.to_string()))?;
                        if index > 0 && !text.is_empty() {
                            text.insert(0, '\n');
                        }
                    }
                    if let Some(warnings) = &file.warnings {
                        output::warn(warnings);
                    }
                    let rules = count_of(file.rules.len(), "rule");
                    let skipped = match not_checked.len() {
                        0 => String::new(),
                        count => format!(", {} not checked", count_of(count, "value")),
                    };
                    output::report(not_checked.iter().map(|value| format!("{}:{value}", input::name(path))));
                    output::print(&format!("{text}{}: {rules}, valid{skipped}\n", self.display_name(path)))?;
                }
            }
        }
        Ok(if problems == 0 { ExitCode::SUCCESS } else { output::report_count(problems) })
    }

    fn print_json(&self) -> Result<ExitCode, ExitCode> {
        let registry = diana_server::registry();
        let files = self.files.iter().map(|path| {
            let name = input::name(path);
            match self.read(path, &registry) {
                Err(error) => CheckedFile::invalid(name, &error),
                Ok((file, not_checked)) => CheckedFile::valid(name, &file, not_checked),
            }
        });
        let files = files.collect::<Vec<_>>();
        let valid = files.iter().all(|file| file.valid);
        json::print(&Checked { valid, files })?;
        Ok(if valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn read(&self, path: &Path, registry: &Registry) -> Result<(RuleFile, Vec<NotChecked>), InputError> {
        let variables = if self.no_env { Variables::Unresolved } else { Variables::FromEnvironment };
        let tls_files = if self.no_files { TlsFiles::Ignored } else { TlsFiles::Checked };
        input::rule_file_with(path, self.remote.as_deref(), registry, variables, tls_files)
    }

    fn display_name(&self, path: &Path) -> String {
        match &self.remote {
            None => input::name(path),
            Some(remote) => format!("{} over {}", input::name(remote), input::name(path)),
        }
    }
}
