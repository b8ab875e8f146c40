//! The upstreams: the servers that requests are forwarded to.
//!
//! Each worker has its own connections to each upstream, so that no worker waits for another. Workers share only the
//! upstreams' health, and each counts on its own cache lines.
//!
//! An HTTP/1 connection is driven by the request that uses it, not by a separate task: the response wakes the very task
//! that waits for it.

mod balancer;
mod body;
mod connector;
mod endpoint;
mod error;
mod health;
mod http1;
mod http2;
mod registry;
mod response_timeout;
mod send;

pub(crate) use balancer::{Balancer, Upstreams};
pub(crate) use body::{BodyError, UpstreamBody};
pub(crate) use connector::{Connector, tls_config};
pub(crate) use endpoint::Endpoint;
pub(crate) use error::{UpstreamError, WireError};
pub(crate) use registry::UpstreamRegistry;
pub use registry::{UpstreamStatus, UpstreamWatch};
pub(crate) use send::UpstreamResponse;
