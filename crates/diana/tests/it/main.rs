//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-limit --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod by_hand;
mod costs;
mod decide;
#[cfg(feature = "redis")]
mod given_up;
mod limited;
mod limited_async;
mod limited_rules;
mod limited_scope;
mod limited_shared;
mod lines;
mod mixed;
mod overload;
mod own_kinds;
mod pace;
mod pace_blocking;
mod pace_bytes;
mod pace_late;
mod pace_short_writes;
mod pacing;
mod redis;
mod regressions;
mod reload;
mod settle;
mod sources;
mod support;
