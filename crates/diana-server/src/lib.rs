//! The parts of the program `diana`, as a library: its commands, without their command-line parsing.
//!
//! - [`serve`] is the whole program: gateway, admin server, store, and rules that are reloaded when they change.
//! - [`program_log`] is the program's own log.
//!
//! The gateway is in `diana-gateway`, the services for other gateways in `diana-services`, the admin server in `diana-admin`, the importers in
//! `diana-import`. The logic of `check`, `explain` and `schema` is in `diana` and `diana-rules`; the program only reads files for them,
//! with its [`registry`].

pub mod program_log;
pub mod serve;

use diana_admin::AdminSection;
use diana_gateway::section::GatewaySection;
use diana_rules::Registry;
use diana_services::ServicesSection;

/// Returns the registry of the program: everything that a rule file may have.
///
/// ```
/// assert!(["gateway", "services", "admin", "remote"].iter().all(|name| diana_server::registry().sections().any(|own| own == *name)));
/// ```
pub fn registry() -> Registry {
    let mut registry = diana::registry();
    registry.section::<GatewaySection>();
    registry.section::<AdminSection>();
    registry.section::<ServicesSection>();
    registry
}
