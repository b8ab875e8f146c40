//! All integration tests of this crate in one binary, since each binary takes as long to link as all of them.
//!
//! `cargo test -p diana-core --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

#[cfg(feature = "calendar")]
mod calendar;
mod concurrency;
#[cfg(feature = "conformance")]
mod conformance;
mod fixed_window;
#[cfg(feature = "async")]
mod futures;
mod guava;
mod keyed_limiter;
mod late;
#[cfg(feature = "calendar")]
mod laws;
mod leaky_bucket;
mod limiter;
mod memory_store;
mod min_interval;
mod permits;
mod quota;
mod refilling_bucket;
mod regressions;
mod seed_bugs;
mod seed_listings;
mod sliding_log;
mod sliding_window;
mod smooth;
mod smooth_trial;
mod stress;
mod support;
mod token_bucket;
mod total;
mod window_models;
