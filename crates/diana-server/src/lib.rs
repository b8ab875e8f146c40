//! The parts of the program `diana`, as a library: what its commands do, apart from how they are typed.
//!
//! - [`import`]: moving in from nginx and from Envoy's rate limit service.
//! - [`metrics`]: what the gateway counts, and how Prometheus reads it.
//! - [`access_log`]: a line for each request.
//! - [`admin`]: health, metrics, the rules in force, and single counts looked at and changed by hand, over HTTP.
//!
//! What `check`, `explain` and `schema` do is in `diana` and `diana-rules`; the program only reads files for them.

pub mod access_log;
pub mod admin;
mod date;
pub mod import;
pub mod metrics;
