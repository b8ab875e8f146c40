//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-services --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod resp_cell;
mod resp_clients;
mod resp_commands;
mod resp_hostile;
mod resp_pipelines;
mod resp_rules;
mod resp_shared;
mod resp_stop;
mod resp_support;
