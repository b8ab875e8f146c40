//! All integration tests of this crate in one binary, since each binary takes as long to link as all of them.
//!
//! `cargo test -p diana-core --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue should stop")]

#[cfg(feature = "calendar")]
mod calendar;
mod check_since;
mod cl_throttle;
mod concurrency;
mod concurrency_limiter;
#[cfg(feature = "conformance")]
mod conformance;
mod fixed_window;
#[cfg(feature = "async")]
mod futures;
mod guava;
mod keyed_limiter;
#[cfg(feature = "calendar")]
mod laws;
mod leaky_bucket;
mod limit_set;
mod limiter;
mod memory_store;
mod min_interval;
mod pool;
mod quota;
mod reference_examples;
mod reference_script_bugs;
mod refilling_bucket;
mod regressions;
mod saved_keys;
mod several_limits;
mod sliding_log;
mod sliding_window;
mod smooth;
mod smooth_support;
mod stress;
mod support;
mod token_bucket;
mod total;
mod window_models;
