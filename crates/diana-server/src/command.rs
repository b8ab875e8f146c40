//! The commands, one file each: its arguments, and a `run` that returns the exit code.

pub(crate) mod check;
pub(crate) mod explain;
pub(crate) mod import;
mod input;
pub(crate) mod schema;
pub(crate) mod serve;
