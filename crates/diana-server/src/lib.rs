//! The parts of the program `diana`, as a library: its commands, without their command-line parsing.
//!
//! - [`serve`] is the whole program: gateway, admin server, store, and rules that are reloaded when they change.
//! - [`program_log`] is the program's own log.
//! - [`import`] converts the configuration of nginx and of Envoy's rate limit service.
//!
//! The gateway is in `diana-gateway`, the admin server in `diana-admin`. The logic of `check`, `explain` and `schema` is
//! in `diana` and `diana-rules`; the program only reads files for them.

pub mod import;
pub mod program_log;
pub mod serve;
