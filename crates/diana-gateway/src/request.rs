//! A client's request.
//!
//! - [`head`] checks the head of a request, and builds the head that an upstream gets.
//! - [`body`] streams the body to an upstream, and [`drain`] discards the body of a request that was answered without it.
//! - [`tracker`] counts and logs a request.
//! - [`typed`] is a request that a user describes, for explanations.

mod body;
pub(crate) mod drain;
pub(crate) mod head;
mod tracker;
mod typed;

pub(crate) use body::{BodyFault, BodyProgress, RequestBody, RequestBodyStream};
pub(crate) use tracker::RequestTracker;
pub use typed::{InvalidRequest, RejectedRequest, TypedRequest};
