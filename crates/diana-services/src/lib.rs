//! Diana as a service that other gateways ask: one process, one set of rules, one state, several protocols.
//!
//! ```text
//!  Envoy ──── gRPC: rate limit service v3, ext_authz v3 ──┐
//!  Redis clients ──── RESP 2 and 3 ───────────────────────┼──▶ attributes ──▶ Engine
//!  nginx, Traefik, Caddy ──── HTTP: GET /check ───────────┘
//! ```
//!
//! Each service is an adapter: it turns a message into [attributes](diana_rules::Attributes), asks the engine, and writes
//! the verdict in the form of the protocol.
//!
//! | module | subject |
//! |---|---|
//! | [`section`] | the section `services` of the rule file |
//! | [`server`] | threads, listeners and connections of all services; start and shutdown |
//! | [`envoy`] | Envoy's rate limit service and external authorization |
//! | [`forward_auth`] | `GET /check`, for nginx, Traefik and Caddy |
//! | [`resp`] | the Redis protocol, with redis-cell's `CL.THROTTLE` |

mod envoy;
mod forward_auth;
pub mod resp;
mod section;
mod server;

pub use section::{ServiceSettings, ServicesSection};
pub use server::{ReportServices, RunningServices, ServiceCertificates, Services, StartError};
