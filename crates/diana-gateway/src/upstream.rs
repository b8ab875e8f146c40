//! The upstreams: the servers that requests are forwarded to.
//!
//! Each worker has its own connections to each upstream, so that no worker waits for another. Workers share only the
//! upstreams' health and, for `least_requests`, their numbers of requests; each counts on its own cache lines.
//!
//! An HTTP/1 connection is driven by the request that uses it, not by a separate task: the response wakes the very task
//! that waits for it.

mod balancer;
mod body;
mod checker;
mod connector;
mod endpoint;
mod error;
mod health;
mod http1;
mod http2;
mod probe;
mod registry;
mod response_timeout;
mod retry_budget;
mod send;
mod upstreams;

pub(crate) use balancer::Balancer;
pub(crate) use body::{BodyError, UpstreamBody};
pub(crate) use checker::Checker;
pub(crate) use connector::{Connector, tls_config};
pub(crate) use endpoint::{Endpoint, InFlight};
pub(crate) use error::{UpstreamError, WireError};
pub(crate) use registry::UpstreamRegistry;
pub use registry::UpstreamWatch;
pub(crate) use send::UpstreamResponse;
pub(crate) use upstreams::{Routing, Upstreams};
