//! What is wrong with a document: all of it at once, each with its place, its line, and what was expected.

use crate::document::Document;
use crate::document::node::Span;
use std::fmt;

/// One thing that is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    span: Span,
    what: String,
    expected: Option<String>,
}

impl Problem {
    /// Something is wrong at `span`.
    pub fn new(span: Span, what: impl Into<String>) -> Self {
        Self { span, what: what.into(), expected: None }
    }

    /// Tells what was expected, or what would do.
    #[must_use]
    pub fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Where it is.
    pub fn span(&self) -> Span {
        self.span
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }
}

/// Everything that is wrong with one document, in the order of the text. Printed, each is `NAME:LINE:COLUMN`, what is wrong,
/// the line, and what was expected.
///
/// ```
/// use diana_rules::{Document, Problem, Span};
///
/// let document = Document::new("diana.yaml", "rules:\n  - nam: everyone\n");
/// let problem = Problem::new(Span { start: 11, end: 14 }, "`nam` is no field of a rule").expected("did you mean `name`?");
/// assert_eq!(document.problems([problem]).to_string(), "\
/// diana.yaml:2:5: `nam` is no field of a rule
///   2 |   - nam: everyone
///     |     ^^^ did you mean `name`?
/// ");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    name: String,
    text: String,
    problems: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(document: &Document, problems: impl IntoIterator<Item = Problem>) -> Self {
        let mut problems = problems.into_iter().collect::<Vec<_>>();
        problems.sort_by_key(|problem| problem.span);
        Self { name: document.name().to_owned(), text: document.text().to_owned(), problems }
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.problems.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// The line and column of a byte, both from 1 on, and the line itself. `starts` are the first bytes of all lines.
    fn place(&self, at: usize, starts: &[usize]) -> (usize, usize, &str) {
        let at = at.min(self.text.len());
        let number = starts.partition_point(|start| *start <= at);
        let line_start = starts.get(number.saturating_sub(1)).copied().unwrap_or(0);
        let line = self.text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        (number, self.text.get(line_start..at).unwrap_or_default().chars().count() + 1, line)
    }
}

/// The longest line that is shown.
const WIDEST: usize = 160;
/// The longest text about a problem that is shown: a file may have a name of a megabyte.
const LONGEST: usize = 1_000;
/// The most problems that are shown: whoever mends a hundred looks again anyway.
const MOST: usize = 100;

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let newlines = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(newlines.map(|(at, _)| at + 1)).collect::<Vec<_>>();
        for Problem { span, what, expected } in self.problems.iter().take(MOST) {
            let (number, column, line) = self.place(span.start, &starts);
            writeln!(f, "{}:{number}:{column}: {}", self.name, shown(what, LONGEST))?;
            let margin = number.to_string().len().max(3);
            writeln!(f, "{}", format!("{number:>margin$} | {}", shown(line, WIDEST)).trim_end())?;
            let under = self.text.get(span.start..span.end).and_then(|text| text.lines().next()).unwrap_or_default();
            let room = (WIDEST + 1).saturating_sub(column);
            let marks = "^".repeat(under.chars().take(room).count().max(room.min(1)));
            let indent = if room == 0 { 0 } else { column - 1 };
            let hint = shown(expected.as_deref().unwrap_or_default(), LONGEST);
            if !marks.is_empty() || !hint.is_empty() {
                writeln!(f, "{}", format!("{:>margin$} | {:>indent$}{marks} {hint}", "", "").trim_end())?;
            }
        }
        match self.problems.len().saturating_sub(MOST) {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more"),
        }
    }
}

/// A text on one line, not too long, and without anything that could write elsewhere on a terminal or in a log.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let harmless = |character: char| match character {
        '\t' | '\n' | '\r' => ' ',
        _ if character.is_control() => '\u{fffd}',
        _ => character,
    };
    let mut shown = text.chars().take(most).map(harmless).collect::<String>();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

impl std::error::Error for Problems {}
