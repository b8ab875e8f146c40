//! The servers of Diana, without what they answer: sockets and accepting, TLS, bounds of memory and file descriptors, HTTP/1 and
//! HTTP/2 with clients, and log files. The gateway, the services and the admin server are built on it.
//!
//! ```text
//!  http_server ──▶ worker ──▶ acceptor ──▶ serve_connection ──▶ http1, http2 ──▶ a Handler
//! ```
//!
//! | module | subject |
//! |---|---|
//! | [`listen`] | sockets that several workers share, and accepting from them |
//! | [`tls`] | certificates, chosen by SNI, reloaded when their files change, and checked before anything listens |
//! | [`proxy_protocol`] | a load balancer's header about the client |
//! | [`descriptors`] | how many file descriptors there are, and which part may use the last ones |
//! | [`http1_codec`], [`http2_codec`] | messages of HTTP/1 and HTTP/2, with clients and with upstreams |
//! | [`coarse_timer`] | timeouts that cost almost nothing unless they expire |
//! | [`access_log`] | a line for each request |
//!
//! ```
//! use bytes::Bytes;
//! use diana_metrics::Outcome;
//! use diana_net::{Answer, Connection, Handler, HttpServer, RequestBody, RequestRecord, ServerSettings};
//! use http::{Response, request::Parts};
//! use http_body_util::Full;
//! use std::sync::Arc;
//!
//! /// Greets every client.
//! struct Greet;
//!
//! impl Handler for Greet {
//!     type Body = Full<Bytes>;
//!
//!     fn serve(
//!         self: &Arc<Self>,
//!         connection: &Arc<Connection>,
//!         head: Parts,
//!         body: RequestBody,
//!         _: impl FnOnce(&mut Parts),
//!     ) -> Answer<Full<Bytes>> {
//!         let record = RequestRecord::begin(connection, &head);
//!         let reuse = body.drain(&head);
//!         let mut response = record.respond(Response::new("hello".into()), Outcome::Answered);
//!         reuse.announce(response.headers_mut());
//!         Answer::local(response)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = HttpServer::new(Arc::new(ServerSettings::default()), vec!["127.0.0.1:0".parse()?], None);
//! let mut running = server.start(|_| Arc::new(Greet))?;
//! println!("listening on {:?}", running.addresses());
//! running.stop();
//! # Ok(())
//! # }
//! ```

pub mod access_log;
pub mod coarse_timer;
pub mod descriptors;
pub mod http1_codec;
pub mod http2_codec;
pub mod listen;
pub mod proxy_protocol;
pub mod tls;

mod acceptor;
mod client_bounds;
mod client_io;
mod client_socket;
mod connection;
mod date_header;
mod first_bytes;
mod handler;
mod http1;
mod http2;
mod http_server;
mod log_file;
mod log_time;
mod recorded_body;
mod request_body;
mod request_record;
mod rewind;
mod serve_connection;
mod settings;
mod spare_headers;
mod timeouts;
mod total_memory;
mod worker;
mod worker_state;

pub use client_bounds::ClientBounds;
pub use client_io::ClientIo;
pub use client_socket::ClientSocket;
pub use connection::{ConnInfo, Connection, ForwardedHeaders, PeerTrust, Protocol};
pub use handler::{Answer, DeniedRequest, Handler};
pub use http_server::{CertificateWatch, HttpServer, RunningHttpServer, StartError};
pub use http1::{OnUpgrade, Upgraded};
pub use log_file::LogFile;
pub use log_time::LogTime;
pub use recorded_body::{LocalBody, RecordedBody};
pub use request_body::{BodyFault, BodyProgress, ConnReuse, RequestBody};
pub use request_record::RequestRecord;
pub use rewind::{Rewind, SHARED_READ, read_shared};
pub use settings::ServerSettings;
pub use spare_headers::recycle;
pub use timeouts::Timeouts;
pub use total_memory::{ReservedMemory, TotalMemory};
pub use worker_state::WorkerState;
