//! Documents that people write: YAML, JSON and TOML in one tree with source locations, readers for maps and values, and problems,
//! reported all at once, each with its line and what was expected. It has nothing about rate limits but the words that other rate
//! limiters use, which it explains.
//!
//! | module | subject |
//! |---|---|
//! | [`document`] | a named text, parsed into a [tree](Node), with `${VARIABLES}` replaced |
//! | [`problem`] | one problem, with its location |
//! | [`map_reader`], [`scalar`], [`bytes`] | readers for maps and values |
//! | [`secret`] | values that must not be displayed |
//! | [`foreign_words`] | the words of other rate limiters |

pub mod bytes;
pub mod document;
pub mod foreign_words;
pub mod map_reader;
mod node;
pub mod problem;
mod redacted_line;
pub mod scalar;
pub mod secret;

pub use document::{Document, Format, LocatedProblem, Problems};
pub use node::{MapEntry, Node, Span, Value};
pub use problem::Problem;
pub use secret::Secret;
