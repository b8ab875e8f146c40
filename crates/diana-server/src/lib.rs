//! The parts of the program `diana`, as a library: what its commands do, apart from how they are typed.
//!
//! - [`gateway`] takes requests, lets Diana's filter decide, and passes on what may pass.
//! - [`serve`] is the whole program: gateway, admin server, store, rules that are followed.
//! - [`admin`], [`metrics`], [`access_log`] and [`program_log`] tell what happens.
//! - [`explain`] reads a request that somebody types, as the gateway reads one.
//! - [`import`] moves in from nginx and from Envoy's rate limit service.
//!
//! What `check`, `explain` and `schema` do is in `diana` and `diana-rules`; the program only reads files for them.

pub mod access_log;
pub mod admin;
mod descriptors;
pub mod explain;
pub mod gateway;
pub mod import;
mod log_time;
pub mod metrics;
pub mod program_log;
pub mod serve;
