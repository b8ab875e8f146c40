//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod by_hand;
mod costs;
mod decide;
#[cfg(feature = "redis")]
mod given_up;
#[cfg(feature = "macros")]
mod limited;
#[cfg(feature = "macros")]
mod limited_async;
#[cfg(feature = "macros")]
mod limited_rules;
#[cfg(feature = "macros")]
mod limited_scope;
#[cfg(all(feature = "macros", feature = "redis"))]
mod limited_shared;
mod lines;
mod mixed;
mod overload;
#[cfg(feature = "redis")]
mod own_kinds;
#[cfg(feature = "pace")]
mod pace;
#[cfg(feature = "pace")]
mod pace_blocking;
#[cfg(feature = "pace")]
mod pace_bytes;
#[cfg(feature = "pace")]
mod pace_late;
#[cfg(feature = "pace")]
mod pace_short_writes;
#[cfg(feature = "pace")]
mod pacing;
#[cfg(feature = "redis")]
mod redis;
mod regressions;
mod reload;
mod settle;
#[cfg(all(feature = "redis", feature = "sources"))]
mod sources;
mod support;
