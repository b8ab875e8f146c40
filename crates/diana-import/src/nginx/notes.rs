//! Notes about what could not be migrated, by location.

use super::syntax::Position;
use crate::rule_file::Source;
use crate::{Note, NoteKind};
use std::collections::BTreeSet;

/// Notes without duplicates, and the names of the files that they refer to.
#[derive(Debug, Default)]
pub(super) struct Notes {
    files: Vec<String>,
    notes: BTreeSet<(Position, String, String, NoteKind)>,
}

impl Notes {
    /// Registers a file and returns its number.
    pub(super) fn add_file(&mut self, name: &str) -> usize {
        self.files.push(name.to_owned());
        self.files.len() - 1
    }

    /// Returns the number of files.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Adds a note about something that the rules don't do, or only approximately.
    pub(super) fn add(&mut self, position: Position, directive: &str, what: impl Into<String>) {
        self.notes.insert((position, directive.to_owned(), what.into(), NoteKind::Difference));
    }

    /// Adds a note about something that the rules don't need.
    pub(super) fn info(&mut self, position: Position, directive: &str, what: impl Into<String>) {
        self.notes.insert((position, directive.to_owned(), what.into(), NoteKind::Info));
    }

    /// Returns the source for notes about a rule.
    pub(super) fn source(&self, position: Position, directive: &str) -> Source {
        Source { file: self.file(position).to_owned(), line: position.line, directive: directive.to_owned() }
    }

    /// Formats a location as `FILE:LINE`, for comments.
    pub(super) fn show(&self, position: Position) -> String {
        format!("{}:{}", self.file(position), position.line)
    }

    fn file(&self, position: Position) -> &str {
        self.files.get(position.file).map_or("", String::as_str)
    }

    /// Returns all notes, in the order of the files.
    pub(super) fn finish(self) -> Vec<Note> {
        let note = |(position, directive, what, kind): &(Position, String, String, NoteKind)| Note {
            file: self.file(*position).to_owned(),
            line: position.line,
            directive: directive.clone(),
            what: what.clone(),
            kind: *kind,
        };
        self.notes.iter().map(note).collect()
    }
}
