//! Where requests go: the servers behind the gateway.
//!
//! Each worker has its own connections to each of them, so that no worker waits for another. What is shared is only what they
//! know about a server's health.
//!
//! An HTTP/1 connection is driven by the request that uses it, not by a task of its own: the answer wakes the very task that waits
//! for it.

mod body;
mod connection;
mod connector;
mod group;
mod member;

pub(super) use body::{BodyError, UpstreamBody};
pub(super) use connector::{Connector, tls_config};
pub(super) use group::{Answer, Group, Upstreams};
pub(super) use member::{Health, Member};

use std::fmt;

/// Why no answer came.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection came about.
    Unreachable(String),
    /// The connection broke, or what came was no HTTP.
    Broken(hyper::Error),
    /// The answer, or a connection, took too long.
    TimedOut,
    /// There is no such upstream.
    Nowhere,
    /// The client's body was no good, or did not come.
    ByClient,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it can't be reached: {why}"),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::TimedOut => f.write_str("it took too long"),
            Self::Nowhere => f.write_str("there is none"),
            Self::ByClient => f.write_str("the request's body was no good"),
        }
    }
}
