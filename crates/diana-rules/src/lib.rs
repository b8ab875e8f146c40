//! The rule file of Diana: parsing and validation with helpful messages.
//!
//! # Contents
//! | module | subject |
//! |---|---|
//! | [`file`](mod@file) | a whole file, [`RuleFile`], and its section `store` |
//! | [`builder`] | a file that is built in code, with the same checks |
//! | [`rule`], [`limit`], [`response`], [`upstream_url`] | one rule: its settings, its limits, custom responses, other upstreams |
//! | [`key`], [`matching`], [`expression`], [`identity`] | the keys that rules count by, the requests they match, CEL expressions, and where `account` and other names come from |
//! | [`attributes`] | requests, as rules see them |
//! | [`describe`], [`schema`] | files in plain words, and their JSON Schema for editors |
//! | [`section`], [`algorithm`], [`Registry`] | what programs add: sections of the file, algorithms, keys and matchers |
//! | [`logged_keys`] | whether denials are logged, and how their keys are written |
//! | [`http_settings`] | the settings in `gateway` that every HTTP front end uses |
//! | [`document`] | the crate `diana-document`: YAML, JSON and TOML in one tree with locations, with `${VARIABLES}` from the environment; problems, reported all at once, each with its line and what was expected |
//! | [`map_reader`], [`scalar`], [`bytes`], [`secret`] of that crate, [`multi_host_url`] | readers for maps and values, for sections |

pub mod algorithm;
pub mod attributes;
pub mod builder;
pub mod describe;
pub mod expression;
pub mod file;
pub mod http_settings;
pub mod identity;
mod json_schema;
pub mod key;
pub mod limit;
mod log_level;
pub mod logged_keys;
pub mod matching;
pub mod multi_host_url;
mod names_in_scope;
mod networks;
pub mod permissions;
mod registry;
pub mod response;
pub mod rule;
pub mod schema;
pub mod section;
pub mod upstream_url;
mod words;

pub use attributes::{Attribute, Attributes};
pub use diana_document as document;
pub use diana_document::{Document, LocatedProblem, Problem, Problems, Secret, bytes, map_reader, scalar, secret};
pub use file::RuleFile;
pub use registry::Registry;
pub use section::Section;
