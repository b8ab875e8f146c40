//! The problems of a document: all reported at once, each with its location, its line, and what was expected.

use super::Document;
use crate::problem::Problem;
use crate::redacted_line::{ShownLine, without_passwords};
use std::fmt;

/// All problems of one document, in the order of the text. Each is displayed as `NAME:LINE:COLUMN`, the problem, the
/// line, and what was expected.
///
/// ```
/// use diana_document::Span;
/// use diana_document::{Document, Problem};
///
/// let document = Document::new("diana.yaml", "rules:\n  - nam: everyone\n");
/// let problem = Problem::new(Span { start: 11, end: 14 }, "unknown rule field `nam`").expected("did you mean `name`?");
/// assert_eq!(document.problems([problem]).to_string(), "\
/// diana.yaml:2:5: unknown rule field `nam`
///   2 |   - nam: everyone
///     |     ^^^ did you mean `name`?
/// ");
/// ```
///
/// Passwords and tokens in a line are redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Problems {
    name: String,
    text: String,
    problems: Vec<Problem>,
}

/// A problem and its location, for programs that report it in their own format. Passwords and tokens are redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LocatedProblem {
    /// The name of the document.
    pub file: String,
    /// The line, starting at 1.
    pub line: usize,
    /// The column of its first character, starting at 1.
    pub column: usize,
    /// The problem's text.
    pub message: String,
    /// The expected value, or a suggested fix.
    pub help: Option<String>,
}

impl Problems {
    pub(super) fn new(document: &Document, problems: impl IntoIterator<Item = Problem>) -> Self {
        let problems = problems.into_iter().map(|problem: Problem| problem.located(document.text()));
        let mut problems = problems.collect::<Vec<_>>();
        problems.sort_by_key(|problem| problem.span);
        Self { name: document.name().to_owned(), text: document.text().to_owned(), problems }
    }

    /// Iterates over the problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// Returns the number of problems.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Returns `true` if there are no problems.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Iterates over the problems with their locations. Unlike the displayed text, all of them.
    ///
    /// ```
    /// use diana_document::Span;
    /// use diana_document::{Document, Problem};
    ///
    /// let document = Document::new("diana.yaml", "rules:\n  - nam: everyone\n");
    /// let problem = Problem::new(Span { start: 11, end: 14 }, "unknown rule field `nam`").expected("did you mean `name`?");
    /// let problems = document.problems([problem]);
    /// let located = problems.located().next().ok_or("no problem")?;
    /// assert_eq!((&*located.file, located.line, located.column), ("diana.yaml", 2, 5));
    /// assert_eq!((&*located.message, located.help.as_deref()), ("unknown rule field `nam`", Some("did you mean `name`?")));
    /// # Ok::<(), &str>(())
    /// ```
    pub fn located(&self) -> impl Iterator<Item = LocatedProblem> {
        let starts = self.line_starts();
        self.problems.iter().map(move |Problem { span, what, expected, .. }| {
            let (line, start, _) = self.line(span.start, &starts);
            let text = |text: &str| shown(&without_passwords(text), MAX_MESSAGE);
            LocatedProblem {
                file: self.name.clone(),
                line,
                column: self.column(start, span.start),
                message: text(what),
                help: expected.as_deref().map(text),
            }
        })
    }

    /// Returns the first bytes of all lines.
    fn line_starts(&self) -> Vec<usize> {
        let newlines = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect()
    }

    /// Returns the column of a byte in the line that starts at `start`, 1-based.
    fn column(&self, start: usize, at: usize) -> usize {
        self.text.get(start..at.min(self.text.len())).unwrap_or_default().chars().count() + 1
    }

    /// Returns the number of the line that contains a byte, 1-based, its first byte, and the line itself. `starts` are
    /// the first bytes of all lines.
    fn line(&self, at: usize, starts: &[usize]) -> (usize, usize, &str) {
        let number = starts.partition_point(|start| *start <= at.min(self.text.len()));
        let start = starts.get(number.saturating_sub(1)).copied().unwrap_or(0);
        (number, start, self.text.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default())
    }
}

/// The maximum length of a displayed line.
const MAX_LINE: usize = 160;
/// The maximum length of a displayed problem text: a file may contain a name of a megabyte.
const MAX_MESSAGE: usize = 1_000;
/// The maximum number of displayed problems: after fixing a hundred, users check the file again anyway.
const MAX_PROBLEMS: usize = 100;

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let starts = self.line_starts();
        for Problem { span, what, expected, .. } in self.problems.iter().take(MAX_PROBLEMS) {
            let (number, start, line) = self.line(span.start, &starts);
            let column = self.column(start, span.start);
            writeln!(f, "{}:{number}:{column}: {}", self.name, shown(&without_passwords(what), MAX_MESSAGE))?;
            let line = ShownLine::new(line, span.start.saturating_sub(start)..span.end.saturating_sub(start));
            let margin = number.to_string().len().max(3);
            writeln!(f, "{}", format!("{number:>margin$} | {}", shown(&line.text, MAX_LINE)).trim_end())?;
            let room = MAX_LINE.saturating_sub(line.before);
            let marks = "^".repeat(line.marked.max(1).min(room));
            let indent = if room == 0 { 0 } else { line.before };
            let hint = shown(&without_passwords(expected.as_deref().unwrap_or_default()), MAX_MESSAGE);
            if !marks.is_empty() || !hint.is_empty() {
                writeln!(f, "{}", format!("{:>margin$} | {:>indent$}{marks} {hint}", "", "").trim_end())?;
            }
        }
        match self.problems.len().saturating_sub(MAX_PROBLEMS) {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more"),
        }
    }
}

/// Returns a text on one line, truncated, and without control characters that could affect a terminal or a log.
pub fn shown(text: &str, max: usize) -> String {
    let harmless = |character: char| match character {
        '\t' | '\n' | '\r' => ' ',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    let mut shown = text.chars().take(max).map(harmless).collect::<String>();
    if text.chars().nth(max).is_some() {
        shown.push('…');
    }
    shown
}

impl fmt::Debug for Problems {
    /// Omits the text, which may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problems").field("name", &self.name).field("problems", &self.problems).finish_non_exhaustive()
    }
}

impl std::error::Error for Problems {}
