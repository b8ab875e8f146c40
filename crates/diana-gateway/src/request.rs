//! A client's request.
//!
//! - [`head`] checks the head of a request, and builds the head that an upstream gets.
//! - [`body`] streams the body to an upstream; [`drain`] discards the body of a request that was answered without it.
//! - [`request_tracker`] counts and logs a request.
//! - [`described_request`] is a request that a user describes, parsed as the gateway parses one from the network.

mod body;
mod described_request;
pub(crate) mod drain;
pub(crate) mod head;
mod request_tracker;

pub(crate) use body::{BodyFault, BodyProgress, RequestBody, RequestBodyStream};
pub use described_request::{DescribedRequest, InvalidRequest, RejectedRequest};
pub(crate) use request_tracker::RequestTracker;
