//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-redis --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod acquire;
mod away;
mod charged_back;
mod cluster;
mod conformance;
mod deny_cache;
mod differential;
mod fewer_trips;
mod floods;
mod long_way;
mod refused_at_start;
mod regressions;
mod releases;
mod scripts_forgotten;
mod sentinel;
mod spans;
mod states;
mod support;
mod tls;
mod unwritable;
