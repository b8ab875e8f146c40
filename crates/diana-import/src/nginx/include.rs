//! A configuration with all its includes.
//!
//! nginx reads an `include` as if its text were in its place, and resolves it from the folder of the main file,
//! whichever file contains it. A missing file is a note, not an error: an import often runs on another machine than the
//! one that serves.

use super::lua::{Script, phase};
use super::notes::Notes;
use super::syntax::{Directive, MAX_DEPTH, Position, parse};
use crate::MAX_INPUT;
use diana_rules::document::Format;
use diana_rules::{Document, Problem, Problems};
use std::io;

/// Returns the files that an `include` names: each with its name and its text.
pub type Include<'a> = &'a dyn Fn(&str) -> io::Result<Vec<(String, String)>>;

/// The maximum depth of includes.
const MAX_INCLUDE_DEPTH: usize = 16;
/// The maximum number of included files.
const MAX_FILES: usize = 1_000;

/// Reads a configuration. Records the names of its files in `notes`.
pub(super) fn load(
    name: &str,
    text: &str,
    include: Include<'_>,
    notes: &mut Notes,
) -> Result<Vec<Directive>, Box<Problems>> {
    let mut loader = Loader { include, notes, bytes: 0 };
    loader.read(name, text, 0, 0)
}

struct Loader<'a> {
    include: Include<'a>,
    notes: &'a mut Notes,
    /// The bytes of all files so far.
    bytes: usize,
}

impl Loader<'_> {
    fn read(&mut self, name: &str, text: &str, includes: usize, depth: usize) -> Result<Vec<Directive>, Box<Problems>> {
        let problem =
            |problem: Problem| Box::new(Document::new(name, text).with_format(Format::Yaml).problems([problem]));
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > MAX_INPUT {
            let what = format!("all files together have more than {MAX_INPUT} bytes");
            return Err(problem(Problem::new(diana_rules::document::Span::default(), what)));
        }
        let file = self.notes.add_file(name);
        let directives = parse(text, file).map_err(problem)?;
        self.expand(directives, includes, depth, &problem)
    }

    /// Replaces each `include` by the directives that it includes.
    fn expand(
        &mut self,
        directives: Vec<Directive>,
        includes: usize,
        depth: usize,
        problem: &dyn Fn(Problem) -> Box<Problems>,
    ) -> Result<Vec<Directive>, Box<Problems>> {
        let mut expanded = Vec::with_capacity(directives.len());
        for mut directive in directives {
            let at = |what: String| problem(Problem::new(directive.position.span, what));
            if directive.name != "include" || directive.block.is_some() {
                if let Some(block) = directive.block.take() {
                    if depth == MAX_DEPTH {
                        return Err(at(format!("blocks are nested deeper than {MAX_DEPTH}")));
                    }
                    directive.block = Some(self.expand(block, includes, depth + 1, problem)?);
                }
                if directive.name.ends_with("_file") && phase(&directive.name).is_some() {
                    directive.script = self.script(directive.arg(0));
                    if self.bytes > MAX_INPUT {
                        return Err(at(format!("all files together have more than {MAX_INPUT} bytes")));
                    }
                }
                expanded.push(directive);
                continue;
            }
            if includes == MAX_INCLUDE_DEPTH {
                return Err(at(format!(
                    "includes are nested deeper than {MAX_INCLUDE_DEPTH}; does a file include itself?"
                )));
            }
            match (self.include)(directive.arg(0)) {
                Ok(files) => {
                    for (name, text) in files {
                        if self.notes.files() > MAX_FILES {
                            return Err(at(format!("more than {MAX_FILES} files are included")));
                        }
                        expanded.extend(self.read(&name, &text, includes + 1, depth)?);
                    }
                }
                Err(error) => {
                    let what = format!("`{}` can't be read and was not converted: {error}", directive.arg(0));
                    self.notes.add(directive.position, "include", what);
                }
            }
        }
        Ok(expanded)
    }

    /// Reads a file of Lua, if it can be read here and its name has no variables. nginx resolves the name from its
    /// prefix, usually the folder of the main file or the one above it.
    fn script(&mut self, name: &str) -> Option<Script> {
        if name.contains(['$', '*', '?', '[']) || self.notes.files() > MAX_FILES {
            return None;
        }
        let above = format!("../{name}");
        let names = [name, above.as_str()];
        let names = if name.starts_with('/') { &names[..1] } else { &names[..] };
        let file = names.iter().find_map(|name| (self.include)(name).ok()?.pop());
        let (name, text) = file?;
        self.bytes = self.bytes.saturating_add(text.len());
        let position = Position { file: self.notes.add_file(&name), line: 1, ..Position::default() };
        Some(Script { text, position })
    }
}
