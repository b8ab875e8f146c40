//! The output of the commands, and their exit codes.
//!
//! Results go to standard output, problems to standard error, in colour if it is a terminal (`NO_COLOR` turns that
//! off).

use super::input::InputError;
use anstyle::{AnsiColor, Style};
use diana_rules::Problems;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

const RED: Style = AnsiColor::Red.on_default().bold();

/// Reports a usage error that the argument parser can't detect.
pub(super) fn usage_error(what: &str) -> ExitCode {
    // Errors are ignored: standard error may be closed.
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {what}");
    ExitCode::from(2)
}

/// Reports why a command failed.
pub(super) fn failure(what: &str) -> ExitCode {
    let _ = writeln!(anstream::stderr(), "{RED}error:{RED:#} {what}");
    ExitCode::FAILURE
}

/// Returns a text that can do no harm in a terminal: on one line, with a mark for each control character, and for
/// those that change the direction of writing.
pub(super) fn visible(text: &str) -> String {
    let harmless = |character: char| match character {
        '\t' | '\n' | '\r' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    text.chars().map(harmless).collect()
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

/// Formats a count: `1 rule`, `2 rules`.
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
    use super::{visible, with_red_marks};

    #[test]
    fn no_control_character_reaches_the_terminal() {
        assert_eq!(visible("a\u{1b}[2J\nb\u{202e}c\u{9b}é"), "a\u{fffd}[2J b\u{fffd}c\u{fffd}é");
    }

    #[test]
    fn only_the_marks_are_red() {
        let problems = "a^b.yaml:1:5: unknown `^x`\n  1 | a: ^^\n    |    ^^ such as `^`\n";
        assert_eq!(
            with_red_marks(problems),
            "a^b.yaml:1:5: unknown `^x`\n  1 | a: ^^\n    |    \u{1b}[1m\u{1b}[31m^^\u{1b}[0m such as `^`\n"
        );
    }
}
