//! The rule file of Diana: what users write, checked kindly.
//!
//! # What is there so far
//! [`Document`], which reads YAML, JSON and TOML into one [tree](Node) that knows where each value stands, and
//! [`Problems`], which are told all at once, each with its line. [`Fields`] reads a map field by field, and finds what nobody
//! asked for.

mod document;
mod fields;
mod problem;

pub use document::node::{Entry, Node, Span, Value};
pub use document::{Document, Format};
pub use fields::Fields;
pub use problem::{Problem, Problems};
