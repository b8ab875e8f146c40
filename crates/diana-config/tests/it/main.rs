//! All integration tests of this crate in one binary, to link only once.
//!
//! `cargo test -p diana-config --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that can't go on should stop")]

mod etcd;
mod file;
mod http;
mod redis;
mod remote_over_local;
mod support;
mod tls;
