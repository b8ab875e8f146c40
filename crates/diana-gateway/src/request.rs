//! A client's request.
//!
//! - [`head`] checks the head of a request, and builds the head that an upstream gets.
//! - [`body`] streams the body to an upstream; [`drain`] discards the body of a request that was answered without it.
//! - [`tracker`] counts and logs a request.
//! - [`explain`] is a request that a user describes, parsed as the gateway parses one from the network.

mod body;
pub(crate) mod drain;
mod explain;
pub(crate) mod head;
mod tracker;

pub(crate) use body::{BodyFault, BodyProgress, RequestBody, RequestBodyStream};
pub use explain::{InvalidRequest, RejectedRequest, TypedRequest};
pub(crate) use tracker::RequestTracker;
