//! Diana as a filter for HTTP: what a gateway is made of, and what a server puts before its handlers.
//!
//! # Where to begin
//! - [`Filter`] decides about requests: [`Filter::check`] says whether one passes, goes elsewhere or is refused, after the wait
//!   that its rules ask for.
//! - [`Pass`] is the guard of a request that passes: whatever becomes of it, what it took comes back as it should.
//! - [`Refused`] is a whole response: the status, when to come again, and why, in the form that the client asks for.
//!
//! # The life of a request
//! ```
//! use diana_http::{Checked, Filter};
//! use diana::rules::{Document, Registry, RuleFile};
//! use diana::Engine;
//! use http::{Request, Response, StatusCode};
//! use std::sync::Arc;
//!
//! # async fn run() -> Result<(), diana::rules::Problems> {
//! let file = Document::new("diana.yaml", "rules: [{name: each-client, by: ip, limit: 1/h, status: 429}]");
//! let filter = Filter::new(Arc::new(Engine::new(&RuleFile::read(&file, &Registry::default())?)));
//!
//! let request = Request::new(http_body_util::Empty::<&[u8]>::new());
//! let client = Some([203, 0, 113, 7].into());
//! let response = match filter.check(&request, client).await {
//!     Checked::Pass(mut pass) => {
//!         pass.begin();
//!         // Here the request is carried out.
//!         pass.answer(Response::new(http_body_util::Empty::<&[u8]>::new()))
//!     }
//!     _ => unreachable!("it is the first one"),
//! };
//! assert_eq!(response.headers()["ratelimit"], "\"each-client\";r=0;t=3600");
//!
//! let Checked::Refuse(refused) = filter.check(&request, client).await else { unreachable!("it is the second one") };
//! let response = refused.into_response();
//! assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
//! assert_eq!(response.headers()["retry-after"], "3600");
//! # Ok(())
//! # }
//! # futures_util::future::FutureExt::now_or_never(run()).unwrap().unwrap();
//! ```

mod attributes;
mod bandwidth;
mod body;
mod call;
#[cfg(feature = "macros")]
mod call_refused;
mod chain;
mod checking;
mod client;
mod cookies;
mod fields;
mod filter;
mod heeding;
mod layer;
mod load;
mod method;
mod options;
mod outcome;
mod outgoing;
mod pairs;
mod pass;
mod path;
mod policy;
mod query;
mod refusal;
#[cfg(feature = "reqwest")]
mod reqwest;
mod settling;
mod signature;

pub use attributes::HttpAttributes;
pub use bandwidth::{Pacing, Slowed};
pub use body::PassBody;
pub use call::{HttpAnswer, HttpCall};
#[cfg(feature = "macros")]
pub use call_refused::CallRefused;
pub use chain::{Chain, ChainRefusal, Filtering, HttpFilter};
pub use checking::Checking;
pub use client::client_address;
pub use diana::rules::RateLimitHeaders;
pub use filter::Filter;
pub use heeding::{HeedLayer, Heeding, HeedingFuture};
pub use layer::{ClientAddress, DianaBody, DianaFuture, DianaLayer, DianaService, DivertedTo};
pub use load::LoadSampler;
pub use method::normal_method;
pub use options::FilterOptions;
pub use outcome::{Checked, Diverted};
pub use outgoing::{
    ByKey, NoLimit, NoTurn, Outgoing, OutgoingError, OutgoingFuture, OutgoingLayer, OutgoingLimit, TooBusy, Turn,
};
pub use pass::Pass;
pub use path::{decoded_path, malformed_path, normal_path};
pub use refusal::Refused;
pub use signature::SignatureFilter;

/// The page's code, so that it is tested.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/in-your-server.md")]
struct InYourServer;
