//! The commands, one file each: its arguments, and a `run` that says how it went.

pub(crate) mod import;
