//! Importers: convert the limits of nginx, Envoy's rate limit service and limitador to Diana's rules.
//!
//! An importer reads the configuration of another program and writes an equivalent rule file, with a comment at each
//! rule about its origin. Anything that can't be migrated, or only approximately, is a [`Note`] with its line and what
//! to do about it.
//!
//! - [`import_nginx`] converts a configuration of nginx with its includes.
//! - [`import_envoy`] converts the configuration of envoyproxy/ratelimit.
//! - [`import_limitador`] converts the limits file of limitador.
//!
//! Each takes the [`Registry`](diana_rules::Registry) of the program that the rules are for, since it checks its output with it.
//!
//! # What always holds (diana-server/tests/it/import_any_input.rs)
//! - No input makes an importer panic, and the output for a large input is bounded.
//! - The output passes `diana check`, whatever names and texts the input has. A rule that would not pass is omitted,
//!   and a note gives the reason.

mod envoy;
mod expression;
mod limitador;
mod nginx;
mod rule_file;
mod yaml;

pub use envoy::import_envoy;
pub use limitador::import_limitador;
pub use nginx::{Include, import_nginx};

use diana_rules::Document;
use std::fmt;

/// The maximum size of an nginx configuration with all files that it includes, in bytes: that of a single document.
pub const MAX_INPUT: usize = Document::MAX_SIZE;

/// The maximum size of the rules, in bytes: larger ones could not be read.
const MAX_OUTPUT: usize = Document::MAX_SIZE;

/// The longest condition of a rule, in bytes.
const MAX_CONDITION: usize = 4096;

/// The maximum number of limits, locations or descriptors: as many as a file may have rules.
const MAX_COUNT: usize = 10_000;

/// The hint for an imported file without a `gateway`.
const GATEWAY: &str = "the file has only rules; to serve with it, add a `gateway` section with `listen` and `upstream`";

/// The hint for an imported file whose `gateway` has only `trusted_proxies`.
const GATEWAY_FIELDS: &str = "the `gateway` of the file has only `trusted_proxies`; to serve with it, add `listen` and `upstream` to that section";

/// The hint for every imported file with rules for Envoy.
const SERVICES: &str = "the file has only rules; to serve with it, add `services: {envoy: 127.0.0.1:8081}`";

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Imported {
    /// The rule file, as YAML with comments.
    pub rules: String,
    /// The parts that could not be migrated, in the order of the files.
    pub notes: Vec<Note>,
    /// The steps that remain before the rules can be used, one sentence each.
    pub hints: Vec<String>,
}

/// Something that was not migrated unchanged. Printed as `FILE:LINE: directive: what, and what to do`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Note {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The directive or field.
    pub directive: String,
    /// The difference, and what to do.
    pub what: String,
    /// Whether the rules differ from the original configuration.
    pub kind: NoteKind,
}

/// The severity of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NoteKind {
    /// The rules have the same effect without it.
    Info,
    /// The directive was not migrated, or only approximately. `--strict` fails on these.
    Difference,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.directive, self.what)
    }
}
