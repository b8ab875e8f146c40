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

    /// The line and column of a byte, both from 1 on, and the line itself.
    fn place(&self, at: usize) -> (usize, usize, &str) {
        let at = at.min(self.text.len());
        let before = self.text.get(..at).unwrap_or(&self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
        let number = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        (number, before.get(line_start..).unwrap_or_default().chars().count() + 1, line)
    }
}

/// The longest line that is shown.
const WIDEST: usize = 160;

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Problem { span, what, expected } in &self.problems {
            let (number, column, line) = self.place(span.start);
            writeln!(f, "{}:{number}:{column}: {what}", self.name)?;
            let shown = line.chars().take(WIDEST).map(|character| if character == '\t' { ' ' } else { character });
            let shown = shown.collect::<String>();
            let margin = number.to_string().len().max(3);
            writeln!(f, "{number:>margin$} | {}", shown.trim_end())?;
            let under = self.text.get(span.start..span.end).and_then(|text| text.lines().next()).unwrap_or_default();
            let marks = "^".repeat(under.chars().count().max(1));
            let hint = expected.as_deref().unwrap_or_default();
            if column <= WIDEST {
                writeln!(f, "{:>margin$} | {:>2$}{marks} {hint}", "", "", column - 1)?;
            } else if !hint.is_empty() {
                writeln!(f, "{:>margin$} | {hint}", "")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}
