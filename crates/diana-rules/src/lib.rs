//! The rule file of Diana: what users write, checked kindly.
//!
//! # What is there so far
//! - [`Document`] reads YAML, JSON and TOML into one [tree](Node) that knows where each value stands, with `${VARIABLES}` from
//!   the environment.
//! - [`Problems`] are told all at once, each with its line and what was expected; [`Fields`] reads a map field by field, and
//!   finds what nobody asked for.
//! - [`LimitRule`] reads what a rule says about its limits, by the algorithms of a [`Registry`], which is open for yours.
//!
//! - [`By`] says whom a limit counts, by the [`Attributes`] of a request.
//!
//! Whole rules (what they match, what happens beyond) are to come.

mod algorithm;
mod attributes;
mod by;
mod document;
mod fields;
mod limit;
mod problem;
mod scalar;
#[cfg(feature = "sources")]
mod source;

pub use algorithm::{AlgorithmOptions, Configured, Registry};
pub use attributes::{Attribute, Attributes};
pub use by::By;
pub use document::node::{Entry, Node, Span, Value};
pub use document::{Document, Format};
pub use fields::Fields;
pub use limit::LimitRule;
pub use problem::{Problem, Problems};
#[cfg(feature = "sources")]
pub use source::{
    Apply, Origin, Remote, RemoteError, Running, SourceError, SourceStatus, Sources, StartError, default_keep,
};
