//! A client's request.
//!
//! - [`head`] checks the head of a request, and builds the head that an upstream gets.
//! - [`body`] streams the body to an upstream; [`drain`] discards the body of a request that was answered without it.
//! - [`tracker`] counts and logs a request.
//! - [`explain`] is a request that a user describes, parsed as the gateway parses one from the network.

mod body;
pub(crate) mod drain;
pub(crate) mod head;
mod log_record;
mod typed_request;

pub(crate) use body::{BodyFault, BodyProgress, RequestBody, RequestBodyStream};
pub(crate) use log_record::RequestTracker;
pub use typed_request::{InvalidRequest, RejectedRequest, TypedRequest};
