//! The gateway as it runs: the program itself on real sockets, a service behind it that notes every byte, and clients before it,
//! good ones and bad ones.

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
