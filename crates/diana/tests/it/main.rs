//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-limit --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod algorithm_plots;
mod calls;
#[cfg(feature = "redis")]
mod cancellation;
#[cfg(feature = "redis")]
mod cl_throttle;
#[path = "../../../diana-rules/tests/it/common.rs"]
mod common;
mod cost_expressions;
mod count_by_status;
#[cfg(feature = "redis")]
mod custom_extensions;
mod decide;
mod descriptors;
mod essays;
mod guard;
mod index_laws;
mod key_admin;
mod limited;
mod limited_async;
mod limited_oracle;
mod limited_rules;
mod limited_scope;
#[cfg(feature = "redis")]
mod limited_shared;
#[cfg(feature = "redis")]
mod local_and_shared;
mod overload;
mod pace;
mod pace_blocking;
mod pace_bytes;
mod pace_lag;
#[cfg(feature = "redis")]
mod pace_rules;
mod pace_short_writes;
mod pace_support;
#[cfg(feature = "redis")]
mod redis;
mod regressions;
mod reload;
#[cfg(feature = "redis")]
mod rule_limiter;
mod settlement;
mod several_requests;
mod snapshot;
#[cfg(feature = "sources")]
mod sources;
mod support;
mod top_keys;
mod wait_queues;

/// The registry of the files that [`common`] reads.
fn registry() -> diana::rules::Registry {
    diana::rules::Registry::default()
}
