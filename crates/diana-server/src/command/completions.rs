//! `diana completions` and `diana man`: files for shells and for `man`, from the same definitions as the help.

use super::output;
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;

/// Print a script that completes diana's commands and options in a shell
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = COMPLETIONS)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

const COMPLETIONS: &str = "\
Examples:
  diana completions bash > ~/.local/share/bash-completion/completions/diana
  diana completions zsh > ~/.zfunc/_diana               with `fpath+=~/.zfunc` before `compinit` in .zshrc
  diana completions fish > ~/.config/fish/completions/diana.fish
  diana completions powershell >> $PROFILE";

/// Print the manual page, or write one for each command
#[derive(Debug, Args)]
#[command(after_help = MAN)]
pub(crate) struct Man {
    /// Write a page for each command into this folder, such as `diana-top.1`
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  diana man | man -l -
  diana man --dir /usr/local/share/man/man1             then `man diana-top` works";

impl Completions {
    /// Prints the script for a program with these commands.
    pub(crate) fn run(self, mut program: Command) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "diana", &mut script);
        output::print(&String::from_utf8_lossy(&script)).map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }
}

impl Man {
    /// Prints or writes the manual of a program with these commands.
    pub(crate) fn run(self, program: Command) -> ExitCode {
        self.try_run(program).map_or_else(|code| code, |()| ExitCode::SUCCESS)
    }

    fn try_run(&self, program: Command) -> Result<(), ExitCode> {
        // Without `help`, which would have a page for each command again.
        let command = program.disable_help_subcommand(true);
        match &self.dir {
            Some(dir) => {
                let failed =
                    |error| output::failure(&format!("can't write manual pages to {}: {error}", dir.display()));
                std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(command, dir)).map_err(failed)
            }
            None => {
                let mut page = Vec::new();
                let rendered = clap_mangen::Man::new(command).render(&mut page);
                rendered.map_err(|error| output::failure(&error.to_string()))?;
                output::print(&String::from_utf8_lossy(&page))
            }
        }
    }
}
