//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-redis --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod acquire;
mod charge_after_outage;
mod cl_throttle;
mod cluster;
mod conformance;
mod connect_errors;
mod deny_cache;
mod differential;
mod essays;
mod high_latency;
mod local_time;
mod never_over_limit;
mod not_writable;
mod outage;
mod redis_states;
mod regressions;
mod releases;
mod round_trips;
mod script_flush;
mod sentinel;
mod support;
mod tls;
