//! The commands, one file each: its arguments, and a `run` that returns the exit code.

pub(crate) mod admin;
pub(crate) mod audit;
pub(crate) mod check;
mod check_files;
pub(crate) mod completions;
pub(crate) mod explain;
pub(crate) mod import;
mod input;
mod json;
pub(crate) mod key;
mod output;
pub(crate) mod reload;
pub(crate) mod schema;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod what_if;
