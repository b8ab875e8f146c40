//! The running gateway: the program itself on real sockets, with an upstream that records every byte, and with
//! well-behaved and malicious clients.

mod bodies;
mod clients;
mod conformance_http1;
mod floods;
mod heads;
mod http2;
mod http2_upstreams;
mod leaving;
mod memory;
mod operations;
mod paths;
mod pooling;
mod proxies;
mod regressions;
mod slow;
mod smuggling;
mod tls;
mod upstreams;
