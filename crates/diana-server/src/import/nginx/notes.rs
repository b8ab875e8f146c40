//! What could not be carried over, by its place.

use super::super::rule::Source;
use super::super::{Note, NoteKind};
use super::syntax::Place;
use std::collections::BTreeSet;

/// Notes, each only once, and the names of the files that they are about.
#[derive(Debug, Default)]
pub(super) struct Notes {
    files: Vec<String>,
    notes: BTreeSet<(Place, String, String, NoteKind)>,
}

impl Notes {
    /// Knows another file; its number.
    pub(super) fn add_file(&mut self, name: &str) -> usize {
        self.files.push(name.to_owned());
        self.files.len() - 1
    }

    /// How many files there are.
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    /// Something that the rules don't do, or only nearly.
    pub(super) fn add(&mut self, place: Place, directive: &str, what: impl Into<String>) {
        self.notes.insert((place, directive.to_owned(), what.into(), NoteKind::Difference));
    }

    /// Something that the rules can do without.
    pub(super) fn info(&mut self, place: Place, directive: &str, what: impl Into<String>) {
        self.notes.insert((place, directive.to_owned(), what.into(), NoteKind::Info));
    }

    /// Where notes about a rule point.
    pub(super) fn source(&self, place: Place, directive: &str) -> Source {
        Source { file: self.file(place).to_owned(), line: place.line, directive: directive.to_owned() }
    }

    /// `FILE:LINE`, as comments have it.
    pub(super) fn show(&self, place: Place) -> String {
        format!("{}:{}", self.file(place), place.line)
    }

    fn file(&self, place: Place) -> &str {
        self.files.get(place.file).map_or("", String::as_str)
    }

    /// All of them, in the order of the files.
    pub(super) fn finish(self) -> Vec<Note> {
        let note = |(place, directive, what, kind): &(Place, String, String, NoteKind)| Note {
            file: self.file(*place).to_owned(),
            line: place.line,
            directive: directive.clone(),
            what: what.clone(),
            kind: *kind,
        };
        self.notes.iter().map(note).collect()
    }
}
