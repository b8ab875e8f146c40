//! Diana as an HTTP filter: the building blocks of a gateway, and middleware for servers.
//!
//! # Where to begin
//! - [`Filter`] decides about requests: [`Filter::check`] returns a permit or a denial, after the wait of its rules.
//! - [`RequestPermit`] is for a granted request: it releases or refunds the request's charges in every case.
//! - [`Denial`] is a complete response: the status, the retry time and the reason, in the format that the client
//!   accepts.
//!
//! # The life of a request
//! ```
//! use diana_http::Filter;
//! use diana::rules::{Document, Registry, RuleFile};
//! use diana::Engine;
//! use http::{Request, Response, StatusCode};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = Document::new("diana.yaml", "rules: [{name: each-client, by: ip, limit: 1/h, status: 429}]");
//! let filter = Filter::new(Engine::new(&RuleFile::read(&file, &Registry::default())?));
//!
//! let request = Request::new(http_body_util::Empty::<&[u8]>::new());
//! let client = Some([203, 0, 113, 7].into());
//! let mut permit = filter.check(&request, client).await.expect("it is the first request");
//! permit.begin();
//! // The handler runs here.
//! let response = permit.finish(Response::new(http_body_util::Empty::<&[u8]>::new()));
//! assert_eq!(response.headers()["ratelimit"], "\"each-client\";r=0;t=3600");
//!
//! let denial = filter.check(&request, client).await.unwrap_err();
//! let response = denial.into_response();
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(response.headers()["retry-after"], "3600");
//! # Ok(())
//! # }
//! ```

mod attributes;
mod client_ip;
mod cookies;
mod cost_header;
mod denial;
mod filter_chain;
mod find_header;
pub mod head;
mod header_values;
mod layer;
mod limit_response_cache;
#[cfg(feature = "macros")]
mod limited_response;
mod load_sampler;
mod options;
mod pairs;
mod path;
mod permit;
mod permit_body;
mod problem;
mod query;
mod rate_limit_filter;
mod ratelimit_headers;
mod scheme;
#[cfg(feature = "signature")]
mod signature;
mod throttle;

pub use attributes::{HttpAttributes, normal_method, set_several};
pub use client_ip::{client_address, forwarded_client, is_trusted_proxy};
pub use cost_header::COST_HEADER;
pub use denial::Denial;
pub use diana::rules::http_settings::RateLimitHeaders;
pub use filter_chain::{FilterChain, FilterChainDenial, FilterFuture, HttpFilter, UnknownFilter};
pub use find_header::find_header;
pub use layer::{
    ClientAddress, RateLimit, RateLimitBody, RateLimitFuture, RateLimitLayer, ReroutedTo, SharedStoreIgnored,
};
#[cfg(feature = "macros")]
pub use limited_response::LimitedResponse;
pub use load_sampler::LoadSampler;
pub use options::FilterOptions;
pub use path::{MAX_FORM_BYTES, decoded_path, form_bytes, malformed_path, normal_path};
pub use permit::RequestPermit;
pub use permit_body::PermitBody;
pub use problem::problem_response;
pub use rate_limit_filter::{Filter, log};
pub use ratelimit_headers::response_headers;
pub use scheme::{RequestScheme, X_FORWARDED_PROTO, normal_scheme};
#[cfg(feature = "signature")]
pub use signature::SignatureFilter;
pub use throttle::{Throttle, ThrottledBody};

/// Runs the code of these pages as doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tasks/in-your-server.md")]
struct InYourServer;
