//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-examples --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod axum_service;
mod own_filter;
mod page;
mod polite_crawler;
mod program;
mod queue_consumer;
mod two_processes;
mod upload;
