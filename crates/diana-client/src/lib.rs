//! Limits on outgoing calls: middleware for HTTP clients, and for any other tower service.
//!
//! # Where to begin
//! - [`ClientRateLimitLayer`] keeps calls under a limit, by waiting: one limit for all calls, one for each host or
//!   account, a number of concurrent calls, or the rules of a file.
//! - [`RetryAfterLayer`] respects `Retry-After` and `RateLimit` of responses: calls to a host that asked for a pause wait
//!   until it is over. It has a limit of your own as well, if you add one.
//! - [`Overloaded`] is the error of a call that was not sent, with the limit and the retry time.
//!
//! Both layers work with any tower service, and (feature `reqwest`) as middleware of reqwest. Limits on incoming requests
//! are in `diana-http`.

mod client_limit;
mod client_messages;
#[cfg(feature = "reqwest")]
mod reqwest;
mod retry_after;

pub use client_limit::{
    ByKey, ClientLimit, ClientLimitError, ClientRateLimit, ClientRateLimitError, ClientRateLimitFuture,
    ClientRateLimitLayer, NoLimit, Overloaded, PermitFuture,
};
pub use client_messages::{RequestHost, ResponseMeta};
pub use retry_after::{RetryAfter, RetryAfterFuture, RetryAfterLayer};

/// Runs the code of this page as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/outgoing-calls.md")]
struct OutgoingCalls;
