//! The running gateway: the program itself on real sockets, with an upstream that records every byte, and with
//! well-behaved and malicious clients.

mod accept_queue;
mod balancing;
mod bodies;
mod clients;
mod conformance_http1;
pub(crate) mod count_by_status;
mod disconnects;
mod floods;
mod heads;
mod health_checks;
mod http2;
mod http2_interim;
mod http2_memory;
mod http2_pooling;
mod http2_upstreams;
mod operations;
mod paths;
mod permissions;
mod regressions;
mod reporting;
mod retries;
mod scheme;
mod slow_clients;
mod smuggling;
mod tls;
mod trusted_proxies;
mod upstreams;
