//! The parts of the program `diana`, as a library: its commands, without their command-line parsing.
//!
//! - [`gateway`] accepts requests, runs Diana's filter on them, and proxies those that are allowed.
//! - [`serve`] is the whole program: gateway, admin server, store, and rules that are reloaded when they change.
//! - [`admin`], [`metrics`], [`access_log`] and [`program_log`] report what happens.
//! - [`explain`] parses a request from the command line or the admin API as the gateway parses one.
//! - [`import`] converts the configuration of nginx and of Envoy's rate limit service.
//!
//! The logic of `check`, `explain` and `schema` is in `diana` and `diana-rules`; the program only reads files for them.

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
