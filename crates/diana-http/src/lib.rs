//! Diana as a filter for HTTP.

mod bandwidth;
mod chain;
mod outgoing;
mod signature;

pub use bandwidth::{Pacing, Slowed};
pub use chain::{Chain, ChainRefusal, Filtering, HttpFilter};
pub use outgoing::{ByKey, Outgoing, OutgoingError, OutgoingFuture, OutgoingLayer, OutgoingLimit, TooBusy, Turn};
pub use signature::SignatureFilter;
