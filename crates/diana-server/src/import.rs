//! Moving in: the rules of other rate limiters as Diana's.
//!
//! An importer reads a foreign file and writes a rule file that does the same, with a comment at each rule that tells where
//! it comes from. What can't be carried over, or only nearly, is a [`Note`] with its line and what to do about it.
//!
//! # What always holds (tests/it/any_input.rs)
//! - No input makes an importer panic, and what it makes of a large one is bounded.
//! - What an importer writes passes `diana check`, whatever names and texts the foreign file has. A rule that would not pass
//!   is left out, and a note says why.

mod envoy;
mod expression;
mod nginx;
mod rule;
mod yaml;

pub use envoy::import_envoy;
pub use nginx::{Include, import_nginx};

use std::fmt;

/// The largest file that is read, in bytes; also all files together that an nginx configuration includes.
pub const LARGEST: usize = 16 << 20;

/// The longest condition that a rule may have, in bytes.
const LONGEST_CONDITION: usize = 4096;

/// The most limits, locations or descriptors: as many rules as a file may have.
const MOST: usize = 10_000;

/// What every imported file still needs.
const GATEWAY: &str = "the file has rules only; to serve with them, say under `gateway` where Diana listens (`listen`) and where requests go (`upstream`)";

/// What became of a foreign file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// A rule file, as YAML with comments.
    pub rules: String,
    /// What could not be carried over, in the order of the files.
    pub notes: Vec<Note>,
    /// What is left to do before the rules can be used, one sentence each.
    pub hints: Vec<String>,
}

/// Something that was not carried over as it was. Printed, it is `FILE:LINE: directive: what, and what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Note {
    /// The file that it stands in.
    pub file: String,
    /// Its line, from 1 on.
    pub line: usize,
    /// The directive or field that is meant.
    pub directive: String,
    /// What became of it, and what to do.
    pub what: String,
    /// Whether the rules differ from what the foreign file says.
    pub kind: NoteKind,
}

/// Whether a note is about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoteKind {
    /// The rules limit the same without it.
    Info,
    /// It was not carried over, or only nearly. `--strict` fails on these.
    Difference,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.directive, self.what)
    }
}
