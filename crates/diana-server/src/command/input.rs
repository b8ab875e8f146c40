//! Shared by the commands that read rule files: input from files and standard input, and the output of problems.
//!
//! Results go to standard output, problems to standard error, in colour if it is a terminal (`NO_COLOR` turns that
//! off).

use anstyle::{AnsiColor, Style};
use diana_rules::file::NotChecked;
use diana_rules::{Document, Problems, Registry, RuleFile};
use diana_server::import::MAX_INPUT;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const RED: Style = AnsiColor::Red.on_default().bold();

/// Why a rule file can't be used.
#[derive(Debug)]
pub(super) enum InputError {
    /// The file can't be read, with the reason.
    Unreadable(String),
    /// The file is invalid.
    Problems(Problems),
}

/// The source of `${VARIABLES}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variables {
    FromEnvironment,
    /// None; the values that have them are not checked.
    Unresolved,
}

/// Reads a rule file, and replaces its rules by those of a config server's document, if there is one.
pub(super) fn rule_file(path: &Path, remote: Option<&Path>, registry: &Registry) -> Result<RuleFile, InputError> {
    rule_file_with(path, remote, registry, Variables::FromEnvironment).map(|(file, _)| file)
}

/// The same, with another source of variables. Also returns the values that were not checked.
pub(super) fn rule_file_with(
    path: &Path,
    remote: Option<&Path>,
    registry: &Registry,
    variables: Variables,
) -> Result<(RuleFile, Vec<NotChecked>), InputError> {
    let local = document(path)?;
    let (file, not_checked) = match variables {
        Variables::FromEnvironment => RuleFile::read(&local, registry).map(|file| (file, Vec::new())),
        Variables::Unresolved => RuleFile::read_without_environment(&local, registry),
    }
    .map_err(InputError::Problems)?;
    match remote {
        None => Ok((file, not_checked)),
        Some(remote) => {
            let file = file.with_remote(&document(remote)?, registry).map_err(InputError::Problems)?;
            Ok((file, not_checked))
        }
    }
}

/// Returns the display name of a file, also for standard input.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { "stdin".to_owned() } else { path.display().to_string() }
}

pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Reads a file or standard input, up to a maximum size.
pub(super) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if is_stdin(path) { read_limited(io::stdin().lock()) } else { read_limited(File::open(path)?) }
}

pub(super) fn read_limited(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_INPUT).unwrap_or(u64::MAX);
    from.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_INPUT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("more than {MAX_INPUT} bytes")));
    }
    Ok(bytes)
}

fn document(path: &Path) -> Result<Document, InputError> {
    let name = name(path);
    let unreadable =
        |reason: &dyn std::fmt::Display| InputError::Unreadable(format!("{name}: can't be read: {reason}"));
    let bytes = bytes(path).map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| unreadable(&error))?;
    Ok(Document::new(&name, text))
}

/// Fails if standard input is named more than once: it can be read only once.
pub(super) fn require_single_stdin<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), ExitCode> {
    if paths.into_iter().filter(|path| is_stdin(path)).count() <= 1 {
        return Ok(());
    }
    Err(usage_error("`-` given more than once; standard input can be read only once"))
}

/// Reports a usage error that the argument parser can't detect.
pub(super) fn usage_error(what: &str) -> ExitCode {
    // Errors are ignored: standard error may be closed.
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {what}");
    ExitCode::from(2)
}

impl InputError {
    /// Reports the error, and returns the number of problems.
    pub(super) fn report(&self) -> usize {
        let (text, count) = match self {
            Self::Unreadable(reason) => (format!("{reason}\n"), 1),
            Self::Problems(problems) => (with_red_marks(&problems.to_string()), problems.len()),
        };
        let _ = anstream::stderr().write_all(text.as_bytes());
        count
    }
}

/// Writes lines to standard error.
pub(super) fn report(lines: impl Iterator<Item = String>) {
    for line in lines {
        // Errors are ignored: standard error may be closed.
        let _ = writeln!(anstream::stderr(), "{line}");
    }
}

/// Reports warnings: likely mistakes in a valid file.
pub(super) fn warn(warnings: &Problems) {
    let _ = anstream::stderr().write_all(with_red_marks(&warnings.to_string()).as_bytes());
}

/// Reports the number of problems.
pub(super) fn report_count(problems: usize) -> ExitCode {
    let _ = writeln!(anstream::stderr(), "{RED}{}{RED:#}", count_of(problems, "problem"));
    ExitCode::FAILURE
}

/// `1 rule`, `2 rules`.
pub(super) fn count_of(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// Colours the marks below the lines of the file red.
fn with_red_marks(problems: &str) -> String {
    let mut colored = String::with_capacity(problems.len());
    for line in problems.lines() {
        // A line of the file has its number before the bar; a line of marks has none.
        let is_marks = line.trim_start().starts_with("| ");
        let first = line.find('^').filter(|_| is_marks);
        let _ = match first.map(|first| line.split_at(first)) {
            None => writeln!(colored, "{line}"),
            Some((before, after)) => {
                let (marks, hint) = after.split_at(after.find(|mark| mark != '^').unwrap_or(after.len()));
                writeln!(colored, "{before}{RED}{marks}{RED:#}{hint}")
            }
        };
    }
    colored
}

/// Writes to standard output. A closed pipe, as after `head`, is not an error.
pub(super) fn print(text: &str) -> Result<(), ExitCode> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ExitCode::SUCCESS),
        Err(error) => {
            let _ = writeln!(io::stderr(), "can't write to standard output: {error}");
            Err(ExitCode::FAILURE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_red_marks;

    #[test]
    fn only_the_marks_are_red() {
        let problems = "a^b.yaml:1:5: unknown `^x`\n  1 | a: ^^\n    |    ^^ such as `^`\n";
        assert_eq!(
            with_red_marks(problems),
            "a^b.yaml:1:5: unknown `^x`\n  1 | a: ^^\n    |    \u{1b}[1m\u{1b}[31m^^\u{1b}[0m such as `^`\n"
        );
    }
}
