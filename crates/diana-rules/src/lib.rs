//! The rule file of Diana: parsing and validation with helpful messages.
//!
//! # Contents
//! | module | subject |
//! |---|---|
//! | [`file`](mod@file) | a whole file, [`RuleFile`], and its section `store` |
//! | [`rule`], [`limit`], [`response`], [`upstream_url`] | one rule: its settings, its limits, custom responses, other upstreams |
//! | [`key`], [`matching`], [`expression`], [`identity`] | the keys that rules count by, the requests they match, CEL expressions, and where `account` and other names come from |
//! | [`attributes`] | requests, as rules see them |
//! | [`describe`], [`schema`] | files in plain words, and their JSON Schema for editors |
//! | [`section`], [`algorithm`], [`Registry`] | what programs add: sections of the file, algorithms, keys and matchers |
//! | [`logged_keys`] | whether denials are logged, and how their keys are written |
//! | [`http_settings`] | the settings in `gateway` that every HTTP front end uses |
//! | [`document`], [`problem`] | YAML, JSON and TOML in one tree with locations, with `${VARIABLES}` from the environment; problems, reported all at once, each with its line and what was expected |
//! | [`map_reader`], [`scalar`], [`bytes`], [`multi_host_url`], [`secret`] | readers for maps and values, for sections |

pub mod algorithm;
pub mod attributes;
pub mod bytes;
pub mod describe;
pub mod document;
pub mod expression;
pub mod file;
mod foreign_words;
pub mod http_settings;
pub mod identity;
pub mod key;
pub mod limit;
pub mod logged_keys;
pub mod map_reader;
pub mod matching;
pub mod multi_host_url;
mod names_in_scope;
pub mod permissions;
pub mod problem;
mod registry;
pub mod response;
pub mod rule;
pub mod scalar;
pub mod schema;
pub mod secret;
pub mod section;
pub mod upstream_url;

pub use attributes::{Attribute, Attributes};
pub use document::Document;
pub use file::RuleFile;
pub use problem::{LocatedProblem, Problem, Problems};
pub use registry::Registry;
pub use secret::Secret;
pub use section::Section;
