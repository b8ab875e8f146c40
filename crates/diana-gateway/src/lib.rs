//! Diana's gateway, a reverse proxy as a library: it accepts requests, checks them with Diana's filter, and forwards
//! the allowed ones to upstreams.
//!
//! ```text
//!              ┌ worker 0: a thread, a runtime, its own sockets, its own connections to upstreams ┐
//!  clients ──▶ ┤ worker 1: the same                                                               ├──▶ upstreams
//!              └ worker n: the same                                                               ┘
//! ```
//!
//! The kernel assigns each connection to one worker, which serves it until it ends. On the request path, workers share
//! only the counts.
//!
//! | module | subject |
//! |---|---|
//! | [`gateway`] | starts and stops the workers, and replaces their upstreams |
//! | [`worker`] | what a worker serves requests with |
//! | [`serve`] | one request, from its head to its response: the place to start reading |
//! | [`upgrade`] | upgraded connections |
//! | [`upstream`] | connections to upstreams: balancing, health checks, retries, HTTP/1 and HTTP/2 |
//! | [`head`], [`paced_upload`] | the head and the body that an upstream gets |
//! | [`response_body`], [`local_response`] | the response to the client, also those that the gateway creates itself |
//! | [`section`] | the section `gateway` of the rule file |
//!
//! Connections of clients, HTTP/1 and HTTP/2 are in `diana-net`, which passes each request to [`serve`].
//!
//! ```no_run
//! use diana::EngineOptions;
//! use diana_rules::{Document, RuleFile};
//! use diana_gateway::Gateway;
//! use diana_gateway::section::GatewaySection;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let document = Document::new("diana.yaml", "
//! gateway: {listen: 127.0.0.1:8080, upstream: http://127.0.0.1:3000}
//! rules: [{name: each-address, by: ip, limit: 100/s}]
//! ");
//! let mut registry = diana::registry();
//! registry.section::<GatewaySection>();
//! let file = RuleFile::read(&document, &registry)?;
//! let engine = EngineOptions::of(&file).build(&file);
//! let running = Gateway::new(&file, engine)?.start()?;
//! println!("listening on {:?}", running.addresses());
//! running.stop();
//! # Ok(())
//! # }
//! ```

mod gateway;
mod head;
mod local_response;
mod paced_upload;
mod response_body;
pub mod section;
mod serve;
mod upgrade;
mod upstream;
mod worker;

pub use diana_net::{CertificateWatch, access_log};
pub use gateway::{Gateway, RunningGateway, StartError, UpstreamReload};
pub use upstream::UpstreamWatch;

/// Runs the code of these pages as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/your-own-filter.md")]
struct YourOwnFilter;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/your-own-section-and-algorithm.md")]
struct YourOwnSectionAndAlgorithm;
