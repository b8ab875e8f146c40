//! All integration tests of this crate in one program, since each program takes as long to link as all of them.
//!
//! `cargo test -p diana-testing --test it NAME` runs a part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot continue should stop")]

mod etcd_server;
mod http_server;
mod nginx_server;
mod proxy;
mod redis_cluster;
mod redis_sentinel;
mod redis_server;
