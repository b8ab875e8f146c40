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
//! | [`gateway`] | starts and stops the workers |
//! | [`worker`] | one thread: accepts connections and serves them until they end |
//! | [`listener`] | accepting connections up to their bound, and the first bytes of each; sockets and TLS are in `diana-net` |
//! | [`connection`] | a client's connection: its properties and timeouts |
//! | [`http1`] | HTTP/1 with clients; parsing and writing messages, for upstreams too |
//! | [`http2`] | HTTP/2 with clients: a task for each stream, bounded memory |
//! | [`request`] | the life of a request, from its head to its response: the place to start reading; its head, its body, and its record for metrics and the log |
//! | [`proxy`] | an allowed request on its way to an upstream and back; upgraded connections |
//! | [`upstream`] | connections to upstreams: balancing, health checks, retries, HTTP/1 and HTTP/2 |
//! | [`response`] | the response to the client, also those that the gateway creates itself |
//! | [`access_log`] | a line for each request |
//! | [`section`] | the section `gateway` of the rule file |
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

pub mod access_log;
mod connection;
mod gateway;
mod http1;
mod http2;
mod listener;
mod proxy;
mod request;
mod response;
pub mod section;
mod upstream;
mod worker;

pub use gateway::{CertificateWatch, Gateway, RunningGateway, StartError, UpstreamReload};
pub use request::{
    DescribedHead, DescribedRequest, HeadDescription, InvalidRequest, RejectedRequest, parse_target, prepare_head,
};
pub use upstream::{CheckStatus, UpstreamStatus, UpstreamWatch};

/// Runs the code of these pages as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/your-own-filter.md")]
struct YourOwnFilter;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/your-own-section-and-algorithm.md")]
struct YourOwnSectionAndAlgorithm;
